-- Times are microseconds since 1970, UTC. Tokens are whole numbers; a negative number is debt.

-- One bucket: a participant and a policy. Samples before `thinned_us` have been thinned out.
CREATE TABLE bucket (
    id INTEGER PRIMARY KEY,
    participant TEXT NOT NULL,
    policy TEXT NOT NULL,
    thinned_us INTEGER NOT NULL DEFAULT 0,
    UNIQUE (participant, policy)
) STRICT;

-- The state of a bucket at one time. `position` is its index in the response that listed it.
CREATE TABLE sample (
    bucket_id INTEGER NOT NULL REFERENCES bucket (id),
    taken_us INTEGER NOT NULL,
    position INTEGER NOT NULL,
    level INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    refill INTEGER NOT NULL,
    period_us INTEGER NOT NULL,
    category TEXT,
    answered_us INTEGER,
    PRIMARY KEY (bucket_id, taken_us)
) STRICT, WITHOUT ROWID;

-- A copy of the newest sample of each bucket, so that the current state needs no scan of `sample`.
CREATE TABLE latest_sample (
    bucket_id INTEGER PRIMARY KEY REFERENCES bucket (id),
    taken_us INTEGER NOT NULL,
    position INTEGER NOT NULL,
    level INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    refill INTEGER NOT NULL,
    period_us INTEGER NOT NULL,
    category TEXT,
    answered_us INTEGER
) STRICT;

-- The samples of one hour or one day in aggregate, updated with every insert.
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
