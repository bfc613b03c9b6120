"""Exchanging: what ranks have in common that tell each other how far they are while an epoch runs."""

from headrace.errors import BadPipe, warn_once
from headrace.ranks.agree import group_timeout
from headrace.ranks.exchange import EpochRounds, Exchange
from headrace.sharing.arithmetic import Sharing


class ExchangingSharing(Sharing):
    """Ranks exchange counts."""

    exchanges = True
    _exchange: Exchange | None = None

    def first(self, number: int) -> int:
        # Not by a broadcast: a rank that is still inside an epoch waits for a round, and would never join that.
        self._connect()
        return number if self._exchange is None else self._exchange.broadcast(number)

    def _connect(self) -> None:
        super()._connect()
        if self._agreement is not None and self._exchange is None:
            self._exchange = Exchange(self._agreement, group_timeout(self._timeout))

    @property
    def _must_guess(self) -> bool:
        """Ranks are not connected, and make the steps that arithmetic says unless samples fail; a warning says so."""
        if self._exchange is not None or not self.program.one_to_one:
            return False
        warn_once(
            "torch.distributed does not connect these ranks, so they cannot tell each other how many batches they "
            "have: one on which samples fail, or that gets a group less, makes fewer steps than others; "
            "initialise torch.distributed before iterating"
        )
        return True

    def _rounds(self, epoch: int) -> EpochRounds:
        """The rounds of an epoch that begins now."""
        if self._exchange is None:
            raise BadPipe(
                "ops after the division decide how many samples each rank gets (or samples that fail are left out), so "
                "ranks have to tell each other while they run: initialise torch.distributed in every rank before "
                "iterating"
            )
        return self._exchange.epoch(epoch)

    def close(self, wait: bool = True) -> None:
        if self._exchange is None:
            super().close(wait)
        else:
            self._exchange.close()
