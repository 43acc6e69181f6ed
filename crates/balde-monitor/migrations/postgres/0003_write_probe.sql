-- One row that is updated to check that the database accepts writes.
CREATE TABLE write_probe (
    id BIGINT PRIMARY KEY,
    at_us BIGINT NOT NULL
);
