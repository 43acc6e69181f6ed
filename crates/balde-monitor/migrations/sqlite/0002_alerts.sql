-- The staleness check of each participant as JSON. `version` counts the commits: a commit names the
-- version it was computed from and is rejected if that is no longer the current one.
CREATE TABLE participant_state (
    participant TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    staleness TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The alert state machine of each bucket, as JSON.
CREATE TABLE alert_state (
    participant TEXT NOT NULL,
    policy TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (participant, policy)
) STRICT, WITHOUT ROWID;

-- Alert events. The `key` of an event is the same every time the event is computed.
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

-- Messages to deliver: one row for each event and sink. Delivered rows are deleted with their event.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id INTEGER NOT NULL REFERENCES event (id) ON DELETE CASCADE,
    sink TEXT NOT NULL,
    class TEXT NOT NULL,
    episode TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    due_us INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    delivered_us INTEGER
) STRICT;
CREATE INDEX outbox_of_event ON outbox (event_id);
CREATE INDEX outbox_waiting ON outbox (sink, id) WHERE delivered_us IS NULL;
CREATE INDEX outbox_blocking ON outbox (sink, episode, id) WHERE delivered_us IS NULL;

-- The error of each sink's last delivery attempt; NULL if that succeeded.
CREATE TABLE sink_status (
    name TEXT PRIMARY KEY,
    last_error TEXT
) STRICT, WITHOUT ROWID;

-- The number of alerts ever raised. `policy` is empty for alerts about a whole participant.
CREATE TABLE alert_count (
    participant TEXT NOT NULL,
    policy TEXT NOT NULL,
    severity INTEGER NOT NULL,
    alerts INTEGER NOT NULL,
    PRIMARY KEY (participant, policy, severity)
) STRICT, WITHOUT ROWID;

-- The timeline of an incident is the events of its episode, from `first_event_id` on.
CREATE TABLE incident (
    episode TEXT PRIMARY KEY,
    participant TEXT NOT NULL,
    policy TEXT,
    severity INTEGER NOT NULL,
    first_event_id INTEGER NOT NULL,
    opened_us INTEGER NOT NULL,
    closed_us INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX incident_opened ON incident (opened_us);

-- Silences as JSON. `ended_us` is set when a silence is ended before `until_us`.
CREATE TABLE silence (
    id TEXT PRIMARY KEY,
    until_us INTEGER NOT NULL,
    ended_us INTEGER,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
