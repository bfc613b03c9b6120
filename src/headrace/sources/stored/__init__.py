"""Stored formats: files that others have written, read by position.

format    the contract: where the samples of a file stand, and what their bytes mean
spans     what formats find their samples with: tables at the start of a file, scans
index     what a scan of a file has found, kept beside the file
source    many files of one format, as a source with random access
formats   the list of all formats, and which one a path means
others    one format a file
"""
