"""Runs the tests of the loaders that headrace replaces against headrace (`scripts/compat --help`).

suites         which suites there are, and what stands for what in each
environments   one Python for the originals and one for ours, made from a bare Python
running        one side of one suite: every test has an outcome, whatever hangs or dies
losses         why a test that passes with the original does not pass with ours
results        what one run found, as plain data
page           docs/compatibility.md, from the results
side/          on the path of both sides: the plugin that reports outcomes
shims/         on the path of ours: the names of others, answered by headrace, and the proof that they were
"""
