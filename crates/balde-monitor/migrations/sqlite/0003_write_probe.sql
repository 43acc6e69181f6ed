-- One row that is updated to check that the database accepts writes.
CREATE TABLE write_probe (
    id INTEGER PRIMARY KEY,
    at_us INTEGER NOT NULL
) STRICT;
