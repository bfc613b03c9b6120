"""Stored formats: files that others have written, read by position.

form      the contract: where samples stand in a file, and what their bytes mean
finding   what formats find spans with: tables, walks
index     what a scan of a file has found, kept beside the file
source    many files of one form, as a source with random access
others    one form a file
"""
