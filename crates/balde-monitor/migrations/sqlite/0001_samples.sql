-- Times are microseconds since 1970, UTC. Tokens are whole numbers, negative in debt.

-- Whose bucket, under which policy. `thinned_us`: samples before it are thinned out already.
CREATE TABLE bucket (
    id INTEGER PRIMARY KEY,
    participant TEXT NOT NULL,
    policy TEXT NOT NULL,
    thinned_us INTEGER NOT NULL DEFAULT 0,
    UNIQUE (participant, policy)
) STRICT;

-- What a bucket was at a time. `place`: where the answer listed it.
CREATE TABLE sample (
    bucket_id INTEGER NOT NULL REFERENCES bucket (id),
    taken_us INTEGER NOT NULL,
    place INTEGER NOT NULL,
    level INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    refill INTEGER NOT NULL,
    period_us INTEGER NOT NULL,
    category TEXT,
    answered_us INTEGER,
    PRIMARY KEY (bucket_id, taken_us)
) STRICT, WITHOUT ROWID;

-- The newest sample of each bucket, so that the present needs no look into the past.
CREATE TABLE newest (
    bucket_id INTEGER PRIMARY KEY REFERENCES bucket (id),
    taken_us INTEGER NOT NULL,
    place INTEGER NOT NULL,
    level INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    refill INTEGER NOT NULL,
    period_us INTEGER NOT NULL,
    category TEXT,
    answered_us INTEGER
) STRICT;

-- The samples of an hour or a day, taken together as they come in.
CREATE TABLE roll_up (
    bucket_id INTEGER NOT NULL REFERENCES bucket (id),
    width_s INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    level_min INTEGER NOT NULL,
    level_max INTEGER NOT NULL,
    level INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    first_us INTEGER NOT NULL,
    last_us INTEGER NOT NULL,
    PRIMARY KEY (bucket_id, width_s, at_us)
) STRICT, WITHOUT ROWID;
