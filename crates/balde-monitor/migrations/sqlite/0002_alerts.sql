-- The watch over each participant's data. `version` counts the commits: whoever commits names the
-- version that was read.
CREATE TABLE machine (
    participant TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    watch TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE alarm (
    participant TEXT NOT NULL,
    policy TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (participant, policy)
) STRICT, WITHOUT ROWID;

-- What was told. `key` is the same whenever an event is worked out again.
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    episode TEXT NOT NULL,
    participant TEXT NOT NULL,
    policy TEXT,
    severity INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX event_at ON event (at_us);
CREATE INDEX event_of_participant ON event (participant, at_us);
CREATE INDEX event_of_episode ON event (episode, id);

-- Events on their way, one row for each sink. What is delivered stays until its event goes.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id INTEGER NOT NULL REFERENCES event (id) ON DELETE CASCADE,
    sink TEXT NOT NULL,
    class TEXT NOT NULL,
    episode TEXT NOT NULL,
    told_us INTEGER NOT NULL,
    due_us INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    delivered_us INTEGER
) STRICT;
CREATE INDEX outbox_of_event ON outbox (event_id);
CREATE INDEX outbox_waiting ON outbox (sink, id) WHERE delivered_us IS NULL;
CREATE INDEX outbox_blocking ON outbox (sink, episode, id) WHERE delivered_us IS NULL;

-- How the last attempt of each sink ended.
CREATE TABLE sink (
    name TEXT PRIMARY KEY,
    last_error TEXT
) STRICT, WITHOUT ROWID;

-- How often something was told, ever. `policy` is empty for the participant as a whole.
CREATE TABLE alert_count (
    participant TEXT NOT NULL,
    policy TEXT NOT NULL,
    severity INTEGER NOT NULL,
    alerts INTEGER NOT NULL,
    PRIMARY KEY (participant, policy, severity)
) STRICT, WITHOUT ROWID;

-- Its timeline are the events of the episode from `first_event` on.
CREATE TABLE incident (
    episode TEXT PRIMARY KEY,
    participant TEXT NOT NULL,
    policy TEXT,
    severity INTEGER NOT NULL,
    first_event INTEGER NOT NULL,
    opened_us INTEGER NOT NULL,
    closed_us INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX incident_opened ON incident (opened_us);

CREATE TABLE silence (
    id TEXT PRIMARY KEY,
    until_us INTEGER NOT NULL,
    ended_us INTEGER,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
