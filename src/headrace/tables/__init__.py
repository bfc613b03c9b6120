"""Tables of columns: rows taken from them all at once, and the forms in which batches are delivered."""
