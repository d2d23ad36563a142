-- Queues. The columns after config repeat the settings that functions need; 0 means off.
CREATE TABLE mailbox.queue (
  qid int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  incarnation text NOT NULL,
  version bigint NOT NULL DEFAULT 1,
  paused bool NOT NULL DEFAULT false,
  config bytea NOT NULL,
  shards int NOT NULL,
  is_strict bool NOT NULL,
  max_deliveries bigint NOT NULL,
  max_messages bigint NOT NULL,
  max_bytes bigint NOT NULL,
  max_in_flight bigint NOT NULL,
  max_dead bigint NOT NULL,
  max_hold bigint NOT NULL,
  dedup_window bigint NOT NULL,
  dedup_max bigint NOT NULL,
  ready_age bigint NOT NULL,
  ready_count bigint NOT NULL,
  dead_age bigint NOT NULL,
  dead_count bigint NOT NULL,
  drop_expired bool NOT NULL,
  dead_to text COLLATE "C" NOT NULL
);

CREATE INDEX queue_dead_to ON mailbox.queue (dead_to) WHERE dead_to <> '';

-- Numbers of messages and of places. A sequence has no dead rows, however long a transaction is held open.
CREATE SEQUENCE mailbox.place;

-- Bodies, and what is sent with them: written once, never updated.
CREATE TABLE mailbox.body (
  seq bigint PRIMARY KEY,
  sent_at bigint NOT NULL,
  grp bytea,
  extra bytea,
  body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE mailbox.body ALTER COLUMN body SET STORAGE EXTERNAL;

-- The state of a message. Times are microseconds since 1970.
--
--   r  ready, where it was sent: in the order of places, which is also that of ages
--   b  ready again, or moved here: at any place
--   s  ready in a queue with strict groups
--   d  delayed        w  delayed after a delivery, in a queue with strict groups
--   f  in flight      x  dead; place is the order of deaths, and born the time of death
--
-- arrived is the order in which messages were sent, redriven or moved here: of those that fall due together, the
-- first goes first. grp is set in queues with strict groups, until the message dies. releases is how often the message
-- was given back uncounted since its last delivery that counted; started says that first_at is the time of the
-- latest delivery, and again that this was leased again under its receipt.
CREATE TABLE mailbox.message (
  seq bigint PRIMARY KEY,
  qid int NOT NULL,
  shard int NOT NULL,
  state "char" NOT NULL,
  place bigint NOT NULL,
  arrived bigint NOT NULL,
  born bigint NOT NULL,
  due bigint NOT NULL,
  hold bigint NOT NULL DEFAULT 0,
  nonce bigint NOT NULL DEFAULT 0,
  deliveries int NOT NULL DEFAULT 0,
  releases int NOT NULL DEFAULT 0,
  started bool NOT NULL DEFAULT false,
  again bool NOT NULL DEFAULT false,
  redrives int NOT NULL DEFAULT 0,
  size int NOT NULL,
  id uuid NOT NULL,
  first_at bigint,
  grp bytea,
  error bytea,
  error_type bytea,
  reason text,
  dead_at bigint,
  from_reason bytea,
  from_queue bytea,
  from_deliveries bytea,
  from_error bytea
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX message_sent ON mailbox.message (qid, shard, place) WHERE state = 'r';
CREATE INDEX message_back ON mailbox.message (qid, shard, place) WHERE state IN ('b', 's');
CREATE INDEX message_age ON mailbox.message (qid, shard, born, arrived) WHERE state IN ('b', 's');
CREATE INDEX message_due ON mailbox.message (qid, shard, due, arrived) WHERE state IN ('d', 'w', 'f');
CREATE INDEX message_dead ON mailbox.message (qid, shard, place) WHERE state = 'x';
CREATE INDEX message_dead_id ON mailbox.message (qid, id) WHERE state = 'x';
CREATE INDEX message_group ON mailbox.message (qid, shard, grp, place) WHERE state = 's';
CREATE INDEX message_blocker ON mailbox.message (qid, shard, grp, place) WHERE state IN ('f', 'w') AND grp IS NOT NULL;

-- Groups of queues with strict groups. stands is where a group that can be received from stands; served is
-- when it was last received from, as a place. An idle group has no messages, and is forgotten when time passes.
CREATE TABLE mailbox.strict_group (
  qid int NOT NULL,
  shard int NOT NULL,
  name bytea NOT NULL,
  stands bigint,
  served bigint NOT NULL DEFAULT 0,
  idle bool NOT NULL DEFAULT false,
  PRIMARY KEY (qid, shard, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX strict_group_stands ON mailbox.strict_group (qid, shard, stands) WHERE stands IS NOT NULL;
CREATE INDEX strict_group_idle ON mailbox.strict_group (qid, shard) WHERE idle;

CREATE TABLE mailbox.dedup (
  qid int NOT NULL,
  key bytea NOT NULL,
  digest bytea NOT NULL,
  id uuid NOT NULL,
  ends bigint NOT NULL,
  PRIMARY KEY (qid, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX dedup_ends ON mailbox.dedup (qid, ends);
