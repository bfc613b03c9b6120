"""Tables of columns: rows taken from them many at once, and the forms in which batches are delivered.

column, table, gather, records      what a table is, and how rows are taken from it
source, in_memory                   tables as sources of a pipe
matching, merge                     filters, tables put together
ipc, table_transfer, batch_transfer how tables go to workers, and batches come back
convert/                            Arrow arrays, frames and rows as tables; tables as numpy, torch, Arrow, pandas ...
stored/                             tables on disk, read in units (row groups)
ops/                                operators on columns
"""
