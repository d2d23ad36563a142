-- Fair groups, and limits of groups. In queues with fair groups, ready messages are in state s too, and a message without a group is in a group of its
-- own, whose name no text can be (alone). strict_group has the groups of both kinds:
--
--   busy       messages in flight           rank     what groups are ordered by before stands: busy in fair groups, 0 in strict ones
--   fills      when the bucket is full      until    no delivery before: the group was throttled
--   is_over    the group is at its limit    wakes    when it may not be any more, or when an idle group can be forgotten
--
-- A group at its limit has no stands, whatever waits in it, so no receive meets it.
ALTER TABLE mailbox.strict_group ADD COLUMN busy int NOT NULL DEFAULT 0, ADD COLUMN rank int NOT NULL DEFAULT 0, ADD COLUMN fills bigint NOT NULL DEFAULT 0,
  ADD COLUMN until bigint NOT NULL DEFAULT 0, ADD COLUMN is_over bool NOT NULL DEFAULT false, ADD COLUMN wakes bigint;
UPDATE mailbox.strict_group g SET busy = (SELECT count(*) FROM mailbox.message a
  WHERE a.qid = g.qid AND a.shard = g.shard AND a.grp = g.name AND a.state IN ('f', 'w') AND a.state = 'f' AND a.grp IS NOT NULL) WHERE NOT g.idle;
DROP INDEX mailbox.strict_group_stands;
CREATE INDEX strict_group_turn ON mailbox.strict_group (qid, shard, rank, stands) WHERE stands IS NOT NULL;
CREATE INDEX strict_group_wakes ON mailbox.strict_group (qid, shard, wakes) WHERE wakes IS NOT NULL;
CREATE INDEX strict_group_over ON mailbox.strict_group (qid, shard) WHERE is_over;
CREATE INDEX strict_group_until ON mailbox.strict_group (qid, until) WHERE until > 0;

-- limited says that a group of the queue has had a limit or was throttled: others look at no limits.
ALTER TABLE mailbox.queue ADD COLUMN is_fair bool NOT NULL DEFAULT false, ADD COLUMN limited bool NOT NULL DEFAULT false;

-- Limits. That of all groups has an empty name. A bucket has a token each spacing, and slack is the time that a whole one takes to fill, but for one token.
CREATE TABLE mailbox.group_limit (
  qid int NOT NULL,
  name bytea NOT NULL,
  in_flight bigint NOT NULL,
  spacing bigint NOT NULL,
  slack bigint NOT NULL,
  PRIMARY KEY (qid, name)
);

-- alone is the name of the group of a message without a group, in queues with fair groups.
CREATE FUNCTION mailbox.alone(p_id uuid) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT '\xff'::bytea || uuid_send(p_id) $$;

-- is_group says whether messages of this name have a group, which can have a limit.
CREATE FUNCTION mailbox.is_group(p_name bytea) RETURNS bool LANGUAGE sql IMMUTABLE AS $$
  SELECT p_name <> '' AND substr(p_name, 1, 1) <> '\xff' $$;

-- group_of is the group that a message is in while it is in a queue, or null.
CREATE FUNCTION mailbox.group_of(q mailbox.queue, p_group bytea, p_id uuid) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN q.is_strict THEN coalesce(p_group, '') WHEN q.is_fair THEN coalesce(nullif(p_group, ''), mailbox.alone(p_id)) END $$;

-- ready_state is the state of a message that is ready again, or was moved here.
CREATE FUNCTION mailbox.ready_state(p_group bytea, p_priority int) RETURNS "char" LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_group IS NOT NULL THEN 's' WHEN p_priority > 0 THEN 'h' ELSE 'b' END::"char" $$;

-- limit_of returns the limit of a group.
CREATE FUNCTION mailbox.limit_of(q mailbox.queue, p_name bytea, OUT in_flight bigint, OUT spacing bigint, OUT slack bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  SELECT l.in_flight, l.spacing, l.slack INTO in_flight, spacing, slack FROM mailbox.group_limit l
    WHERE q.limited AND mailbox.is_group(p_name) AND l.qid = q.qid AND l.name IN (p_name, '') ORDER BY l.name DESC LIMIT 1;
  in_flight := coalesce(in_flight, 0);
  spacing := coalesce(spacing, 0);
  slack := coalesce(slack, 0);
END $$;

-- quota returns how many messages of a group may be delivered now.
CREATE FUNCTION mailbox.quota(q mailbox.queue, g mailbox.strict_group, t bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE l record; v_now bigint; v_quota bigint := 1000000000;
BEGIN
  IF q.limited AND mailbox.is_group(g.name) THEN
    l := mailbox.limit_of(q, g.name);
    v_now := greatest(t, mailbox.clock()); -- regroup may have looked at the clock since
    IF greatest(g.fills - l.slack, g.until) > v_now THEN
      RETURN 0;
    END IF;
    IF l.in_flight > 0 THEN
      v_quota := greatest(l.in_flight - g.busy, 0);
    END IF;
    IF l.spacing > 0 THEN
      v_quota := least(v_quota, (v_now + l.slack - greatest(g.fills, v_now)) / l.spacing + 1);
    END IF;
  END IF;
  RETURN v_quota;
END $$;

-- regroup puts a group where it belongs after a change, by which it has p_more messages in flight: it can be received from if its first ready
-- message is before all that block it, and it is below its limit. p_served says that these messages were received: they take tokens, and the group goes
-- behind the others.
CREATE FUNCTION mailbox.regroup(q mailbox.queue, p_shard int, p_name bytea, p_more int, p_served bool DEFAULT false) RETURNS void LANGUAGE plpgsql AS $$
DECLARE g mailbox.strict_group; o mailbox.strict_group; l record; v_head bigint; v_blocker bigint; v_now bigint; v_next bigint;
BEGIN
  SELECT m.place INTO v_head FROM mailbox.message m
    WHERE m.qid = q.qid AND m.shard = p_shard AND m.grp = p_name AND m.state = 's' ORDER BY m.place LIMIT 1;
  IF substr(p_name, 1, 1) = '\xff' AND v_head IS NULL THEN -- it has no turn that could be remembered
    DELETE FROM mailbox.strict_group a WHERE a.qid = q.qid AND a.shard = p_shard AND a.name = p_name;
    RETURN;
  END IF;
  IF q.is_strict THEN
    SELECT m.place INTO v_blocker FROM mailbox.message m
      WHERE m.qid = q.qid AND m.shard = p_shard AND m.grp = p_name AND m.state IN ('f', 'w') AND m.grp IS NOT NULL ORDER BY m.place LIMIT 1;
  END IF;
  SELECT * INTO o FROM mailbox.strict_group a WHERE a.qid = q.qid AND a.shard = p_shard AND a.name = p_name;
  g := o;
  IF o.qid IS NULL THEN
    g := ROW(q.qid, p_shard, p_name, NULL, 0, false, 0, 0, 0, 0, false, NULL);
  END IF;
  g.busy := greatest(g.busy + p_more, 0);
  g.rank := CASE WHEN q.is_fair THEN g.busy ELSE 0 END;
  g.idle := v_head IS NULL AND v_blocker IS NULL AND (q.is_strict OR g.busy = 0);
  g.is_over := false;
  g.wakes := NULL;
  IF p_served THEN
    g.served := nextval('mailbox.place');
  END IF;
  IF q.limited AND mailbox.is_group(p_name) THEN
    l := mailbox.limit_of(q, p_name);
    v_now := mailbox.clock();
    IF p_served AND l.spacing > 0 THEN
      g.fills := greatest(g.fills, v_now) + p_more * l.spacing;
    END IF;
    v_next := greatest(g.fills - l.slack, g.until);
    IF v_next > v_now THEN
      g.is_over := true;
      g.wakes := v_next;
    ELSE
      g.is_over := l.in_flight > 0 AND g.busy >= l.in_flight;
    END IF;
  END IF;
  g.stands := CASE WHEN v_head IS NOT NULL AND coalesce(v_head < v_blocker, true) AND NOT g.is_over THEN greatest(v_head, g.served) END;
  IF o.qid IS NULL THEN
    IF NOT g.idle THEN -- it has no turn
      INSERT INTO mailbox.strict_group SELECT g.*;
    END IF;
  ELSIF g IS DISTINCT FROM o THEN
    UPDATE mailbox.strict_group a SET stands = g.stands, served = g.served, idle = g.idle, busy = g.busy, rank = g.rank, fills = g.fills,
      is_over = g.is_over, wakes = g.wakes WHERE a.qid = q.qid AND a.shard = p_shard AND a.name = p_name;
  END IF;
END $$;

-- regroup is the other one for calls that began before this migration.
CREATE OR REPLACE FUNCTION mailbox.regroup(p_qid int, p_shard int, p_name bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM mailbox.regroup(mailbox.rules(p_qid, p_shard), p_shard, p_name, 0);
END $$;

-- refund gives the token of a delivery back that did not count. The bucket of a throttled group stays empty. regroup is called after it.
CREATE FUNCTION mailbox.refund(q mailbox.queue, m mailbox.message) RETURNS void LANGUAGE plpgsql AS $$
DECLARE l record; v_now bigint;
BEGIN
  IF q.limited AND mailbox.is_group(m.grp) THEN
    l := mailbox.limit_of(q, m.grp);
    v_now := mailbox.clock();
    UPDATE mailbox.strict_group g SET fills = CASE WHEN g.until > v_now THEN greatest(g.fills - l.spacing, g.until + l.slack) ELSE g.fills - l.spacing END
      WHERE g.qid = q.qid AND g.shard = m.shard AND g.name = m.grp;
  END IF;
END $$;

-- undo takes a delivery back that no receiver has got.
CREATE FUNCTION mailbox.undo(q mailbox.queue, m mailbox.message, t bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE mailbox.message a SET deliveries = a.deliveries - 1, first_at = CASE WHEN NOT a.started THEN a.first_at END, nonce = 0 WHERE a.seq = m.seq;
  PERFORM mailbox.refund(q, m);
  PERFORM mailbox.put(q, m, m.place, t, t);
END $$;

-- may_take says whether the group of a message may have one more in flight.
CREATE FUNCTION mailbox.may_take(q mailbox.queue, m mailbox.message) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE l record;
BEGIN
  IF NOT q.limited OR m.grp IS NULL THEN
    RETURN true;
  END IF;
  l := mailbox.limit_of(q, m.grp);
  RETURN l.in_flight = 0 OR l.in_flight > coalesce((SELECT g.busy FROM mailbox.strict_group g WHERE g.qid = q.qid AND g.shard = m.shard AND g.name = m.grp), 0);
END $$;

-- wake_groups looks at groups whose wakes are over, and reports false if there may be more.
CREATE FUNCTION mailbox.wake_groups(q mailbox.queue, p_shard int, p_low bigint, p_now bigint) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_name bytea; v_woken int := 0;
BEGIN
  FOR v_name IN SELECT g.name FROM mailbox.strict_group g WHERE g.qid = q.qid AND g.shard = p_shard AND g.wakes > p_low AND g.wakes <= p_now
    ORDER BY g.wakes LIMIT 1000 LOOP
    PERFORM mailbox.regroup(q, p_shard, v_name, 0);
    v_woken := v_woken + 1;
  END LOOP;
  RETURN v_woken < 1000;
END $$;

-- throttled counts the ready messages of groups at their limit, 10,000 at most.
CREATE FUNCTION mailbox.throttled(q mailbox.queue, p_shard int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF NOT q.limited THEN
    RETURN 0;
  END IF;
  RETURN (SELECT count(*) FROM (SELECT FROM mailbox.strict_group g CROSS JOIN LATERAL (SELECT FROM mailbox.message a
    WHERE a.qid = q.qid AND a.shard = p_shard AND a.grp = g.name AND a.state = 's' LIMIT 10000) z
    WHERE g.qid = q.qid AND g.shard = p_shard AND g.is_over LIMIT 10000) y);
END $$;

-- pass_time forgets when groups that have stayed without messages were last received from, and those whose buckets are full.
CREATE OR REPLACE FUNCTION mailbox.pass_time(q mailbox.queue, p_shard int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_now bigint;
BEGIN
  IF q.limited THEN
    v_now := mailbox.clock();
    UPDATE mailbox.strict_group g SET idle = false, served = 0, wakes = greatest(g.fills, g.until)
      WHERE g.qid = q.qid AND g.shard = p_shard AND g.idle AND greatest(g.fills, g.until) > v_now;
  END IF;
  IF q.is_strict OR q.is_fair THEN
    DELETE FROM mailbox.strict_group g WHERE g.qid = q.qid AND g.shard = p_shard AND g.idle;
  END IF;
END $$;

-- empty_groups removes the groups of a queue without messages, except for their buckets.
CREATE FUNCTION mailbox.empty_groups(q mailbox.queue) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_now bigint := mailbox.clock();
BEGIN
  DELETE FROM mailbox.strict_group g WHERE g.qid = q.qid AND greatest(g.fills, g.until) <= v_now;
  UPDATE mailbox.strict_group g SET busy = 0, served = 0 WHERE g.qid = q.qid;
  PERFORM mailbox.regroup(q, g.shard, g.name, 0) FROM (SELECT a.shard, a.name FROM mailbox.strict_group a WHERE a.qid = q.qid OFFSET 0) g;
END $$;

-- choose_fair returns the messages of a batch in a queue with fair groups, and the group of each. Each message is of the group with the fewest messages in flight, and of those
-- of the one that stands first. A group that is taken from goes behind the others that have as many in flight then, so the
-- n-th message of a group with b in flight comes after all of groups with fewer than b + n - 1, and of those with as many before the ones of groups that had
-- fewer at first: one order gives the whole batch. Only the first p_max groups can be in it.
CREATE FUNCTION mailbox.choose_fair(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
  OUT seqs bigint[], OUT groups bytea[], OUT why int) LANGUAGE plpgsql AS $$
DECLARE v_groups mailbox.strict_group[]; v_quotas bigint[]; v_found mailbox.message[]; m mailbox.message; v_deep int; v_more bool; v_size bigint; v_again bool := true;
BEGIN
  WHILE v_again LOOP
    v_again := false;
    seqs := '{}';
    groups := '{}';
    why := 0;
    v_size := 0;
    SELECT array_agg(g ORDER BY g.rank, g.stands), array_agg(mailbox.quota(q, g, t) ORDER BY g.rank, g.stands) INTO v_groups, v_quotas
      FROM (SELECT * FROM mailbox.strict_group a WHERE a.qid = q.qid AND a.shard = p_shard AND a.stands IS NOT NULL ORDER BY a.rank, a.stands LIMIT p_max) g;
    EXIT WHEN v_groups IS NULL;
    v_deep := v_groups[1].rank + (p_max - 1) / cardinality(v_groups); -- up to so many in flight
    LOOP
      SELECT array_agg(z.message ORDER BY z.rank + z.n, z.rank DESC, z.stands), coalesce(bool_or(z.n = z.look AND z.n < z.quota), false) INTO v_found, v_more FROM (
        SELECT h.message, h.n, g.rank, g.stands, l.look, v_quotas[g.i] AS quota FROM unnest(v_groups) WITH ORDINALITY AS g(qid, shard, name, stands, served, idle, busy, rank, fills, until, is_over, wakes, i)
          CROSS JOIN LATERAL (SELECT greatest(v_deep + 1 - g.rank, 0) AS look) l
          CROSS JOIN LATERAL (SELECT a AS message, row_number() OVER (ORDER BY a.place) AS n FROM mailbox.message a
            WHERE a.qid = q.qid AND a.shard = p_shard AND a.grp = g.name AND a.state = 's' ORDER BY a.place LIMIT least(l.look, v_quotas[g.i])) h) z;
      EXIT WHEN cardinality(v_found) >= p_max OR NOT (v_more OR v_groups[cardinality(v_groups)].rank > v_deep);
      v_deep := 2 * v_deep + 1;
    END LOOP;
    FOREACH m IN ARRAY coalesce(v_found[:p_max], '{}') LOOP
      IF mailbox.exhausted(q, m) OR m.ends <= t THEN
        IF mailbox.exhausted(q, m) THEN
          PERFORM mailbox.exhaust(q, m, 0, t);
        ELSE
          PERFORM mailbox.end_life(q, m, m.place, t);
        END IF;
        v_again := true; -- the others are chosen without it
        EXIT;
      ELSIF cardinality(seqs) >= p_ceiling THEN
        why := (seqs = '{}')::int;
        EXIT;
      ELSIF seqs <> '{}' AND p_bytes > 0 AND v_size + m.size > p_bytes THEN
        EXIT;
      END IF;
      seqs := seqs || m.seq;
      groups := groups || m.grp;
      v_size := v_size + m.size;
    END LOOP;
  END LOOP;
END $$;

-- throttle delivers no message of a group for a time, or longer if it is throttled already; then its bucket is empty. A time of 0 ends that. code is f if 1,000 groups
-- of the queue are throttled, and p_wait then the time until one is not, and null if the call has to be made again.
CREATE FUNCTION mailbox.throttle(p_qid int, p_shard int, p_name bytea, INOUT p_wait bigint, p_wide bool, OUT code text, OUT version bigint, OUT woken text, OUT endings text)
LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; l record; t bigint; v_first bigint; v_count int;
BEGIN
  PERFORM mailbox.durable();
  t := mailbox.begin_call(p_qid, ARRAY[p_shard], p_wide, 0);
  IF t IS NOT NULL THEN
    UPDATE mailbox.queue a SET limited = true WHERE a.qid = p_qid AND NOT a.limited;
    q := mailbox.rules(p_qid, p_shard);
    version := q.version;
    code := 's';
    l := mailbox.limit_of(q, p_name);
    IF p_wait = 0 THEN
      UPDATE mailbox.strict_group g SET until = 0, fills = least(g.fills, t + l.slack) WHERE g.qid = p_qid AND g.shard = p_shard AND g.name = p_name;
    ELSE
      SELECT count(*), min(g.until) INTO v_count, v_first FROM (SELECT a.until FROM mailbox.strict_group a
        WHERE a.qid = p_qid AND a.until > t AND a.until > 0 AND (a.shard, a.name) <> (p_shard, p_name) ORDER BY a.until LIMIT 1000) g;
      IF v_count = 1000 AND NOT EXISTS (SELECT FROM mailbox.strict_group g WHERE g.qid = p_qid AND g.shard = p_shard AND g.name = p_name AND g.until > t) THEN
        code := 'f';
        p_wait := v_first - t;
      ELSE
        INSERT INTO mailbox.strict_group AS g (qid, shard, name, until, fills) VALUES (p_qid, p_shard, p_name, t + p_wait, t + p_wait + l.slack)
          ON CONFLICT (qid, shard, name) DO UPDATE SET until = greatest(g.until, excluded.until), fills = greatest(g.fills, greatest(g.until, excluded.until) + l.slack);
      END IF;
    END IF;
    PERFORM mailbox.regroup(q, p_shard, p_name, 0);
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- set_limits changes the limits of the groups of a queue: names, and three numbers for each, as the columns of group_limit. A bucket is at most empty.
CREATE FUNCTION mailbox.set_limits(p_qid int, p_names bytea[], p_numbers bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; g record; l record; v_now bigint := mailbox.clock();
BEGIN
  IF ARRAY(SELECT (n.name, p_numbers[3 * n.i - 2], p_numbers[3 * n.i - 1], p_numbers[3 * n.i])::text FROM unnest(p_names) WITH ORDINALITY AS n(name, i) ORDER BY n.name)
    = ARRAY(SELECT (a.name, a.in_flight, a.spacing, a.slack)::text FROM mailbox.group_limit a WHERE a.qid = p_qid ORDER BY a.name) THEN
    RETURN;
  END IF;
  UPDATE mailbox.queue a SET limited = true WHERE a.qid = p_qid AND NOT a.limited;
  DELETE FROM mailbox.group_limit a WHERE a.qid = p_qid;
  INSERT INTO mailbox.group_limit SELECT p_qid, n.name, p_numbers[3 * n.i - 2], p_numbers[3 * n.i - 1], p_numbers[3 * n.i] FROM unnest(p_names) WITH ORDINALITY AS n(name, i);
  q := mailbox.rules(p_qid, 0);
  FOR g IN SELECT a.shard, a.name FROM mailbox.strict_group a WHERE a.qid = p_qid LOOP
    l := mailbox.limit_of(q, g.name);
    UPDATE mailbox.strict_group a SET fills = least(a.fills, greatest(v_now, a.until) + l.slack + l.spacing) WHERE a.qid = p_qid AND a.shard = g.shard AND a.name = g.name;
    PERFORM mailbox.regroup(q, g.shard, g.name, 0);
  END LOOP;
END $$;

-- configure_limited creates a queue (p_version is 0) or changes its configuration, as configure does, with its limits.
CREATE FUNCTION mailbox.configure_limited(p_name text, p_version bigint, p_incarnation text, p_config bytea, p_strict bool, p_drop bool,
  p_dead_to text, p_rules bigint[], p_fair bool, p_names bytea[], p_numbers bigint[]) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_qid int;
BEGIN
  IF NOT mailbox.configure(p_name, p_version, p_incarnation, p_config, p_strict, p_drop, p_dead_to, p_rules) THEN
    RETURN false;
  END IF;
  UPDATE mailbox.queue a SET is_fair = p_fair WHERE a.name = p_name AND p_version = 0;
  SELECT a.qid INTO v_qid FROM mailbox.queue a WHERE a.name = p_name;
  PERFORM mailbox.set_limits(v_qid, p_names, p_numbers);
  RETURN true;
END $$;

-- arrive makes a message of one queue ready at the tail of another. Its age begins again; its life goes on.
CREATE OR REPLACE FUNCTION mailbox.arrive(q mailbox.queue, t mailbox.queue, m mailbox.message, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_shard int := mailbox.arrival_shard(t, m); v_place bigint := nextval('mailbox.place'); v_grp bytea; v_key bytea := mailbox.kept_key(t, m); h mailbox.message; c record;
BEGIN
  IF t.is_strict OR t.is_fair THEN
    SELECT mailbox.group_of(t, b.grp, m.id) INTO v_grp FROM mailbox.body b WHERE b.seq = m.seq;
  END IF;
  IF v_key IS NOT NULL THEN
    h := mailbox.holder(t.qid, v_key);
    v_key := CASE WHEN coalesce(h.seq, m.seq) = m.seq THEN v_key END; -- a dead letter must arrive: it has no key if that is held
  END IF;
  UPDATE mailbox.message a SET qid = t.qid, shard = v_shard, state = mailbox.ready_state(v_grp, a.priority),
    place = v_place, arrived = v_place, born = p_at, due = p_at, hold = 0, nonce = 0, deliveries = 0, releases = 0, grp = v_grp, error = m.error,
    error_type = NULL, reason = NULL, dead_at = NULL, from_reason = m.from_reason, from_queue = m.from_queue,
    from_deliveries = m.from_deliveries, from_error = m.from_error,
    ttl = m.ttl, ends = m.ends, priority = CASE WHEN v_grp IS NULL THEN a.priority END, aged = NULL, unique_key = v_key, replaced = NULL
    FROM (SELECT b.seq, b.state FROM mailbox.message b WHERE b.seq = m.seq OFFSET 0) o WHERE a.seq = m.seq AND o.seq = a.seq
    RETURNING o.state AS old, a.state AS new INTO c;
  IF m.ends IS NOT NULL AND NOT t.mortal THEN
    PERFORM mailbox.follow_lives(t.qid);
  END IF;
  IF c.new = 'h' AND NOT t.leveled THEN
    PERFORM mailbox.follow_levels(t.qid);
  END IF;
  PERFORM mailbox.moved(q, m.shard, c.old, NULL, m.size);
  PERFORM mailbox.moved(t, v_shard, NULL, c.new, m.size);
  IF m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(q, m.shard, m.grp, -(c.old = 'f')::int);
  END IF;
  IF v_grp IS NOT NULL THEN
    PERFORM mailbox.regroup(t, v_shard, v_grp, 0);
  END IF;
  PERFORM mailbox.expire_by_count(mailbox.rules(t.qid, v_shard), v_shard, p_at);
  PERFORM set_config('mailboxmq.woken', coalesce(current_setting('mailboxmq.woken', true), '') || t.qid || ' ', true);
END $$;

-- choose_strict is choose for a queue with strict groups: group by group, those that were received from
-- longest ago first. The messages that it takes do not block each other.
CREATE OR REPLACE FUNCTION mailbox.choose_strict(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
  OUT seqs bigint[], OUT groups bytea[], OUT why int) LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; g mailbox.strict_group; v_quota bigint; v_seen bytea[] := '{}'; v_bound bigint; v_size bigint := 0; v_got int := 0; v_before int;
BEGIN
  seqs := '{}';
  groups := '{}';
  why := 0;
  WHILE v_got < p_max LOOP
    SELECT * INTO g FROM mailbox.strict_group a
      WHERE a.qid = q.qid AND a.shard = p_shard AND a.rank = 0 AND a.stands IS NOT NULL AND a.name <> ALL (v_seen) ORDER BY a.stands LIMIT 1;
    EXIT WHEN NOT FOUND;
    SELECT a.place INTO v_bound FROM mailbox.message a
      WHERE a.qid = q.qid AND a.shard = p_shard AND a.grp = g.name AND a.state IN ('f', 'w') AND a.grp IS NOT NULL ORDER BY a.place LIMIT 1;
    v_seen := v_seen || g.name;
    v_before := v_got;
    v_quota := mailbox.quota(q, g, t);
    FOR m IN SELECT * FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.grp = g.name AND a.state = 's'
      ORDER BY a.place LOOP
      EXIT WHEN v_got >= p_max OR m.place >= v_bound OR v_got - v_before >= v_quota;
      IF mailbox.exhausted(q, m) OR m.ends <= t THEN
        IF mailbox.exhausted(q, m) THEN
          PERFORM mailbox.exhaust(q, m, 0, t);
        ELSE
          PERFORM mailbox.end_life(q, m, m.place, t);
        END IF;
        IF v_got = v_before THEN -- the group may stand elsewhere now
          v_seen := v_seen[:cardinality(v_seen) - 1];
          EXIT;
        END IF;
        IF EXISTS (SELECT FROM mailbox.message a WHERE a.seq = m.seq AND a.state = 'w') THEN
          v_bound := m.place;
        END IF;
        CONTINUE;
      ELSIF v_got >= p_ceiling THEN
        why := (v_got = 0)::int;
        v_got := p_max;
        EXIT;
      ELSIF v_got > 0 AND p_bytes > 0 AND v_size + m.size > p_bytes THEN
        v_got := p_max;
        EXIT;
      END IF;
      v_got := v_got + 1;
      v_size := v_size + m.size;
      seqs := seqs || m.seq;
      groups := groups || m.grp;
    END LOOP;
  END LOOP;
END $$;

-- collect_one moves a row of the inbox into the queue. Bounds may be exceeded; a message whose dedup key was used, or whose unique key is held, is
-- dropped, or replaces the one that holds it.
CREATE OR REPLACE FUNCTION mailbox.collect_one(q mailbox.queue, r mailbox.inbox, t bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k record; m mailbox.message; h mailbox.message; b mailbox.body; v_place bigint; v_grp bytea; v_due bigint := mailbox.due_at(t, r.delay);
  v_ttl bigint := coalesce(nullif(r.ttl, 0), nullif(q.ttl, 0));
BEGIN
  IF r.kind IN ('c', 'g') THEN
    IF q.counted AND r.size IS NOT NULL THEN -- null: acked before the queue was counted
      PERFORM mailbox.add(q.qid, r.shard, 0, 0, -1, 0, -r.size);
    END IF;
    IF r.kind = 'g' THEN
      PERFORM mailbox.regroup(q, r.shard, r.grp, -1);
    END IF;
  ELSIF r.kind IN ('n', 'r', 'p') THEN
    SELECT * INTO m FROM mailbox.message a WHERE a.seq = r.seq AND a.qid = q.qid AND a.state::text = 'f' AND a.nonce = r.nonce FOR UPDATE;
    IF FOUND THEN
      m.error := coalesce(nullif(r.cause, ''), m.error);
      PERFORM mailbox.settle_held(q, m, r.kind::text, r.delay, NULL, NULL, t);
    END IF;
  ELSE
    IF r.key IS NOT NULL THEN
      k := mailbox.check_key(q.qid, r.key, r.digest, t);
      IF k.code <> '' THEN
        DELETE FROM mailbox.body b WHERE b.seq = r.seq;
        RETURN;
      END IF;
    END IF;
    IF r.unique_key IS NOT NULL THEN
      h := mailbox.holder(q.qid, r.unique_key);
    END IF;
    IF r.key IS NOT NULL THEN
      INSERT INTO mailbox.dedup AS d (qid, key, digest, id, ends) VALUES (q.qid, r.key, r.digest, coalesce(h.id, r.id), t + q.dedup_window)
        ON CONFLICT (qid, key) DO UPDATE SET digest = excluded.digest, id = excluded.id, ends = excluded.ends;
    END IF;
    IF v_ttl IS NOT NULL AND NOT q.mortal THEN
      PERFORM mailbox.follow_lives(q.qid);
    END IF;
    IF r.priority > 0 AND NOT q.leveled THEN
      PERFORM mailbox.follow_levels(q.qid);
    END IF;
    IF h.seq IS NOT NULL THEN
      DELETE FROM mailbox.body a WHERE a.seq = r.seq RETURNING * INTO b;
      IF r.replaces AND h.state <> 'f' THEN
        PERFORM mailbox.replace(q, h, b.extra, b.body, ARRAY[r.from_reason, r.from_queue, r.from_deliveries, r.from_error], v_due, v_ttl, t);
      END IF;
      RETURN;
    END IF;
    v_place := nextval('mailbox.place');
    v_grp := mailbox.group_of(q, r.grp, r.id);
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error, ttl, ends, priority, unique_key)
      VALUES (r.seq, q.qid, r.shard, CASE WHEN v_due > t THEN 'd' WHEN v_grp IS NOT NULL THEN 's' WHEN r.priority > 0 THEN 'p' ELSE 'r' END, v_place, v_place, v_due, v_due,
        r.size, r.id, v_grp, r.from_reason, r.from_queue, r.from_deliveries, r.from_error, v_ttl, v_due + v_ttl, nullif(r.priority, 0), r.unique_key);
    IF v_grp IS NOT NULL AND v_due <= t THEN
      PERFORM mailbox.regroup(q, r.shard, v_grp, 0);
    END IF;
    PERFORM mailbox.moved(q, r.shard, NULL, CASE WHEN v_due > t THEN 'd' ELSE 'r' END::"char", r.size);
    PERFORM mailbox.expire_by_count(q, r.shard, t);
  END IF;
END $$;

-- die makes a message a dead letter, or moves it to the queue of dead letters.
CREATE OR REPLACE FUNCTION mailbox.die(q mailbox.queue, m mailbox.message, p_reason text, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE t mailbox.queue := mailbox.target(q, m, p_reason); v_earlier text; v_state "char";
BEGIN
  PERFORM mailbox.tell('d', q, m, p_reason);
  IF t.qid IS NOT NULL THEN
    v_earlier := convert_from(coalesce(m.from_deliveries, '0'), 'UTF8');
    m.from_deliveries := convert_to((m.deliveries + CASE WHEN v_earlier ~ '^[0-9]{1,9}$' THEN v_earlier::int ELSE 0 END)::text, 'UTF8');
    m.from_reason := convert_to(p_reason, 'UTF8');
    m.from_queue := convert_to(q.name, 'UTF8');
    m.from_error := nullif(m.error, '');
    m.ttl := NULL; -- a dead letter is for a person, who may come later
    m.ends := NULL;
    PERFORM mailbox.arrive(q, t, m, p_at);
    RETURN;
  END IF;
  UPDATE mailbox.message a SET state = 'x', place = nextval('mailbox.place'), born = p_at, dead_at = p_at, due = 0,
    reason = p_reason, error = m.error, error_type = m.error_type, grp = NULL
    FROM (SELECT b.seq, b.state FROM mailbox.message b WHERE b.seq = m.seq OFFSET 0) o WHERE a.seq = m.seq AND o.seq = a.seq
    RETURNING o.state INTO v_state;
  PERFORM mailbox.moved(q, m.shard, v_state, 'x', m.size);
  IF m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(q, m.shard, m.grp, -(v_state = 'f')::int);
  END IF;
  PERFORM mailbox.trim_dead(q, m.shard);
END $$;

-- next_due returns when the shard changes next without a call, or null. Callers look again after two seconds, so it looks for deadlines of three: leases
-- that were acked long before they end would otherwise be walked over while a transaction is held open.
CREATE OR REPLACE FUNCTION mailbox.next_due(q mailbox.queue, p_shard int, t bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_due bigint; v_dead bigint; m mailbox.message; v_until bigint := greatest(t, mailbox.clock()) + 3000000;
BEGIN
  SELECT a.due INTO v_due FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f') AND a.due > t AND a.due <= v_until
    ORDER BY a.due LIMIT 1;
  IF q.mortal THEN
    v_due := least(v_due, (SELECT a.ends FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard
      AND a.state NOT IN ('f', 'x') AND a.ends > t AND a.ends <= v_until ORDER BY a.ends LIMIT 1));
  END IF;
  IF q.limited THEN
    v_due := least(v_due, (SELECT g.wakes FROM mailbox.strict_group g WHERE g.qid = q.qid AND g.shard = p_shard AND g.wakes > t AND g.wakes <= v_until ORDER BY g.wakes LIMIT 1));
  END IF;
  IF q.ready_age > 0 THEN
    m := mailbox.oldest_ready(q.qid, p_shard, q.leveled);
    IF m.born + q.ready_age > t THEN
      v_due := least(v_due, m.born + q.ready_age);
    END IF;
  END IF;
  IF q.dead_age > 0 THEN
    SELECT a.born + q.dead_age INTO v_dead FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'x' ORDER BY a.place LIMIT 1;
    IF v_dead > t THEN
      v_due := least(v_due, v_dead);
    END IF;
  END IF;
  RETURN v_due;
END $$;

-- put makes a message wait at a place until it is due. A life that is over then is marked so that pass finds it. At another
-- place its age begins again when it is due.
CREATE OR REPLACE FUNCTION mailbox.put(q mailbox.queue, m mailbox.message, p_place bigint, p_due bigint, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
  UPDATE mailbox.message a SET place = p_place, due = p_due, error = m.error,
    ends = CASE WHEN a.ends BETWEEN 1 AND p_at THEN a.ends - mailbox.over() ELSE a.ends END,
    aged = CASE WHEN p_place <> a.place THEN p_due ELSE a.aged END,
    state = CASE WHEN p_due <= p_at THEN mailbox.ready_state(a.grp, a.priority)
      WHEN q.is_strict AND a.deliveries + a.releases > 0 THEN 'w' ELSE 'd' END
    FROM (SELECT b.seq, b.state FROM mailbox.message b WHERE b.seq = m.seq OFFSET 0) o WHERE a.seq = m.seq AND o.seq = a.seq
    RETURNING o.state AS old, a.state AS new INTO c;
  PERFORM mailbox.moved(q, m.shard, c.old, c.new, m.size);
  IF m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(q, m.shard, m.grp, -(c.old = 'f')::int);
  END IF;
END $$;

-- remove removes a message.
CREATE OR REPLACE FUNCTION mailbox.remove(q mailbox.queue, m mailbox.message) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_state "char";
BEGIN
  DELETE FROM mailbox.message a WHERE a.seq = m.seq RETURNING a.state INTO v_state;
  PERFORM mailbox.moved(q, m.shard, v_state, NULL, m.size);
  DELETE FROM mailbox.body a WHERE a.seq = m.seq;
  IF m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(q, m.shard, m.grp, -coalesce(v_state = 'f', false)::int);
  END IF;
END $$;

-- redrive makes dead letters ready again at the tail, with their whole lives, oldest death first: those with these ids, or all, that died
-- after the place p_after and up to p_until, which is null in the first call; it looks at p_limit of them. stopped is set if the queue is full, and more if there may be more. stays is the first
-- that stays because another message, held_by, holds its unique key. moved is null if the call has to be made again.
CREATE OR REPLACE FUNCTION mailbox.redrive(p_qid int, p_ids uuid[], p_limit int, p_wide bool, INOUT p_until bigint, INOUT p_after bigint,
  OUT moved int, OUT stopped bool, OUT more bool, OUT stays uuid, OUT held_by uuid, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); m mailbox.message; t bigint; v_place bigint; v_grp bytea; h mailbox.message; v_held bigint; v_looked int := 0;
BEGIN
  PERFORM mailbox.durable();
  stopped := false;
  t := mailbox.begin_call(p_qid, ARRAY(SELECT generate_series(0, q.shards - 1)), p_wide, 0);
  IF t IS NOT NULL THEN
    moved := 0;
    p_until := coalesce(p_until, nextval('mailbox.place'));
    FOR m IN SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.state = 'x' AND a.place > p_after AND a.place <= p_until AND (p_ids IS NULL OR a.id = ANY (p_ids))
      ORDER BY a.place LIMIT p_limit LOOP
      v_looked := v_looked + 1;
      p_after := m.place;
      q := mailbox.rules(p_qid, m.shard);
      -- Retention may just have removed it. As text, state does not match the condition of a partial index, which might be read to its end.
      CONTINUE WHEN NOT EXISTS (SELECT FROM mailbox.message a WHERE a.seq = m.seq AND a.state::text = 'x' AND a.place = m.place);
      IF NOT mailbox.room(q, m.shard, m.size) THEN
        stopped := true;
        EXIT;
      END IF;
      IF m.unique_key IS NOT NULL THEN
        h := mailbox.holder(p_qid, m.unique_key);
        IF h.seq IS NOT NULL THEN
          held_by := CASE WHEN stays IS NULL THEN h.id ELSE held_by END;
          stays := coalesce(stays, m.id);
          CONTINUE;
        END IF;
        IF q.dedup_max > 0 AND coalesce(v_held >= q.dedup_max, true) THEN
          v_held := mailbox.keys_held(p_qid); -- those that have just expired may have had keys
          stopped := v_held >= q.dedup_max;
          EXIT WHEN stopped;
        END IF;
        v_held := v_held + 1;
      END IF;
      v_place := nextval('mailbox.place');
      v_grp := NULL;
      IF q.is_strict OR q.is_fair THEN
        SELECT mailbox.group_of(q, b.grp, m.id) INTO v_grp FROM mailbox.body b WHERE b.seq = m.seq;
      END IF;
      UPDATE mailbox.message a SET state = mailbox.ready_state(v_grp, a.priority), place = v_place, arrived = v_place,
        born = t, due = t, deliveries = 0, releases = 0, redrives = a.redrives + 1, nonce = 0, hold = 0, reason = NULL, error_type = NULL, dead_at = NULL, grp = v_grp,
        ends = t + a.ttl, aged = NULL, replaced = NULL
        WHERE a.seq = m.seq;
      PERFORM mailbox.moved(q, m.shard, 'x', 'b', m.size);
      IF v_grp IS NOT NULL THEN
        PERFORM mailbox.regroup(q, m.shard, v_grp, 0);
      END IF;
      moved := moved + 1;
      PERFORM mailbox.expire_by_count(q, m.shard, t);
      PERFORM mailbox.retain(q, m.shard, t, true, t);
    END LOOP;
    more := v_looked = p_limit;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- send_each adds messages one by one, for queues with rules and messages with keys.
CREATE OR REPLACE FUNCTION mailbox.send_each(q mailbox.queue, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, t bigint, p_ttls bigint[] DEFAULT NULL, p_priorities int[] DEFAULT NULL,
  p_uniques bytea[] DEFAULT NULL, p_replaces bool[] DEFAULT NULL, p_count_held bool DEFAULT false,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint, OUT held bigint) LANGUAGE plpgsql AS $$
DECLARE r mailbox.queue; k record; v_code text; v_seq bigint; v_grp bytea; v_shard int; v_due bigint; v_ttl bigint;
  u record; v_messages bigint[]; v_bytes bigint[]; n int; v_ready int[]; v_delayed int[]; v_size bigint[]; h mailbox.message; v_grows int;
BEGIN
  codes := '';
  ids := array_fill(NULL::uuid, ARRAY[cardinality(p_ids)]);
  waits := array_fill(NULL::bigint, ARRAY[cardinality(p_ids)]);
  IF p_keys IS NOT NULL THEN
    DELETE FROM mailbox.dedup d WHERE d.qid = q.qid AND d.key = ANY (ARRAY(SELECT a.key FROM mailbox.dedup a
      WHERE a.qid = q.qid AND a.ends <= t ORDER BY a.ends LIMIT 4 * cardinality(p_ids) + 64));
    IF p_count AND q.dedup_max > 0 THEN
      SELECT count(*) INTO keys FROM mailbox.dedup a WHERE a.qid = q.qid AND a.ends > t;
    END IF;
  END IF;
  IF p_count_held AND q.dedup_max > 0 THEN
    held := mailbox.keys_held(q.qid);
  END IF;
  FOR i IN 1 .. cardinality(p_ids) LOOP
    v_shard := p_shards[i];
    IF r.qid IS NULL OR q.shards > 1 THEN
      r := mailbox.rules(q.qid, v_shard);
    END IF;
    v_code := '';
    IF p_keys[i] IS NOT NULL THEN
      k := mailbox.check_key(q.qid, p_keys[i], p_digests[i], t);
      v_code := k.code;
      ids[i] := k.id;
    END IF;
    IF v_code = '' AND p_keys[i] IS NOT NULL AND keys >= q.dedup_max THEN
      v_code := 'w';
      waits[i] := (SELECT greatest(min(a.ends) - t, 1) FROM mailbox.dedup a WHERE a.qid = q.qid AND a.ends > t);
    END IF;
    n := v_shard + 1;
    IF v_code = '' AND v_messages[n] IS NULL THEN -- counted once for each call
      u := mailbox.used(r, v_shard);
      v_messages[n] := u.messages;
      v_bytes[n] := u.bytes;
    END IF;
    v_due := mailbox.due_at(t, p_delays[i]);
    v_ttl := coalesce(nullif(p_ttls[i], 0), nullif(q.ttl, 0));
    IF v_code = '' AND p_uniques[i] IS NOT NULL THEN
      h := mailbox.holder(q.qid, p_uniques[i]);
      IF h.seq IS NOT NULL THEN
        v_code := 'h';
        ids[i] := h.id;
        v_grows := length(p_bodies[i]) - h.size;
        IF p_replaces[i] AND h.state <> 'f' THEN -- it is among those that were counted
          v_code := CASE WHEN v_grows <= 0 OR mailbox.fits(r, v_messages[n] - 1, v_bytes[n], v_grows) THEN 'p' ELSE 'f' END;
        END IF;
      ELSIF held >= q.dedup_max THEN
        IF r.ready_count > 0 THEN -- those that were one too many may have had keys
          held := mailbox.keys_held(q.qid);
        END IF;
        v_code := CASE WHEN held >= q.dedup_max THEN 'k' ELSE '' END;
      END IF;
    END IF;
    IF v_code = '' AND NOT mailbox.fits(r, v_messages[n], v_bytes[n], length(p_bodies[i])) THEN
      v_code := 'f';
    END IF;
    IF p_keys[i] IS NOT NULL AND v_code IN ('', 'h', 'p') THEN
      INSERT INTO mailbox.dedup AS d (qid, key, digest, id, ends) VALUES (q.qid, p_keys[i], p_digests[i], coalesce(ids[i], p_ids[i]), t + q.dedup_window)
        ON CONFLICT (qid, key) DO UPDATE SET digest = excluded.digest, id = excluded.id, ends = excluded.ends;
      keys := keys + 1;
    END IF;
    IF v_code = 'p' THEN
      PERFORM mailbox.replace(r, h, p_extras[i], p_bodies[i], p_past[4 * i - 3 : 4 * i], v_due, v_ttl, t);
      v_bytes[n] := v_bytes[n] + v_grows;
      IF r.ready_count > 0 THEN
        v_messages[n] := NULL; -- some may be gone
      END IF;
    END IF;
    IF v_code = '' THEN
      v_code := 's';
      v_seq := nextval('mailbox.place');
      v_grp := mailbox.group_of(q, p_groups[i], p_ids[i]);
      INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) VALUES (v_seq, t, p_groups[i], p_extras[i], p_bodies[i]);
      INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error, ttl, ends, priority, unique_key)
        VALUES (v_seq, q.qid, v_shard, CASE WHEN v_due > t THEN 'd' WHEN v_grp IS NOT NULL THEN 's' WHEN p_priorities[i] > 0 THEN 'p' ELSE 'r' END, v_seq, v_seq, v_due, v_due,
          length(p_bodies[i]), p_ids[i], v_grp, p_past[4 * i - 3], p_past[4 * i - 2], p_past[4 * i - 1], p_past[4 * i], v_ttl, v_due + v_ttl, nullif(p_priorities[i], 0), p_uniques[i]);
      held := held + (p_uniques[i] IS NOT NULL)::int;
      IF v_grp IS NOT NULL AND v_due <= t THEN
        PERFORM mailbox.regroup(q, v_shard, v_grp, 0);
      END IF;
      v_messages[n] := v_messages[n] + 1;
      v_bytes[n] := v_bytes[n] + length(p_bodies[i]);
      v_ready[n] := coalesce(v_ready[n], 0) + (v_due <= t)::int;
      v_delayed[n] := coalesce(v_delayed[n], 0) + (v_due > t)::int;
      v_size[n] := coalesce(v_size[n], 0) + length(p_bodies[i]);
      IF r.ready_count > 0 THEN
        PERFORM mailbox.add(q.qid, v_shard, v_ready[n], v_delayed[n], 0, 0, v_size[n]); -- it is counted
        v_ready[n] := NULL;
        v_delayed[n] := NULL;
        v_size[n] := NULL;
        PERFORM mailbox.expire_by_count(r, v_shard, t);
        v_messages[n] := NULL; -- some may be gone
      END IF;
    END IF;
    codes := codes || v_code;
  END LOOP;
  FOR i IN 1 .. coalesce(array_upper(v_ready, 1), 0) LOOP
    IF q.counted AND v_ready[i] IS NOT NULL THEN
      PERFORM mailbox.add(q.qid, i - 1, v_ready[i], v_delayed[i], 0, 0, v_size[i]);
    END IF;
  END LOOP;
  IF codes ~ '^s*$' THEN
    codes := '';
  END IF;
END $$;

-- send_from adds messages, in order. Of messages that are not sent, codes says why: d duplicate and c conflict, with
-- the id of the first message; h the unique key is held and p the message that holds it was replaced, with its id; f the queue is full; k there are too many unique
-- keys; w there are too many dedup keys, with the microseconds until
-- one is free. An empty code means that all are sent, and null that the call has to be made again. p_past has
-- four values for each message, which it brought from other queues. keys is the number of dedup keys, if p_count, and held that of unique keys, if p_count_held. p_low and
-- p_low_due are a place and a time up to which the caller knows that nothing is left, as in receive; at, if it is not null, is another such time. p_ttls are the
-- times to live, if a message has one; 0 means that of the queue. p_priorities are null if all are 0, and p_uniques, digests of unique keys, if no message has one. p_levels is p_low for each
-- priority above 0.
CREATE OR REPLACE FUNCTION mailbox.send_from(p_qid int, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, p_wide bool, p_low bigint, p_low_due bigint,
  p_ttls bigint[], p_priorities int[], p_levels bigint[], p_uniques bytea[], p_replaces bool[], p_count_held bool,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint, OUT version bigint, OUT woken text, OUT endings text, OUT at bigint, OUT held bigint)
LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; t bigint; v_ruled bool; v_ttl bigint;
BEGIN
  PERFORM mailbox.durable();
  q := mailbox.rules(p_qid, 0);
  v_ttl := nullif(q.ttl, 0);
  v_ruled := q.is_strict OR q.is_fair OR q.max_messages > 0 OR q.max_bytes > 0 OR q.ready_age > 0 OR q.ready_count > 0 OR p_uniques IS NOT NULL;
  IF v_ruled THEN
    PERFORM mailbox.begin_at(p_qid, p_low, p_levels);
    t := mailbox.begin_call(p_qid, p_shards, p_wide, p_low_due);
    at := t;
    IF t IS NULL THEN
      woken := current_setting('mailboxmq.woken', true);
      endings := mailbox.endings();
      RETURN;
    END IF;
  ELSIF 0 <> ANY (p_delays) OR p_ttls IS NOT NULL OR v_ttl IS NOT NULL THEN
    PERFORM mailbox.lock(0, p_qid, p_shards); -- receives look only at deadlines after their last look
  END IF;
  -- Held to the end of the transaction, so that places become visible in order.
  PERFORM mailbox.lock(1, p_qid, p_shards);
  IF p_keys IS NOT NULL AND q.shards > 1 THEN
    PERFORM mailbox.lock(2, p_qid, ARRAY[0]);
  END IF;
  q := mailbox.rules(p_qid, 0);
  t := coalesce(t, mailbox.clock());
  version := q.version;
  IF NOT q.mortal AND (p_ttls IS NOT NULL OR v_ttl IS NOT NULL) THEN
    PERFORM mailbox.follow_lives(p_qid);
  END IF;
  IF NOT q.leveled AND p_priorities IS NOT NULL THEN
    PERFORM mailbox.follow_levels(p_qid);
  END IF;
  codes := '';
  IF v_ruled OR q.counted OR p_keys IS NOT NULL OR p_past IS NOT NULL THEN
    SELECT s.codes, s.ids, s.waits, s.keys, s.held INTO codes, ids, waits, keys, held
      FROM mailbox.send_each(q, p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays, p_keys, p_digests, p_past, p_count, t, p_ttls, p_priorities,
        p_uniques, p_replaces, p_count_held) s;
  ELSE
    WITH n AS MATERIALIZED (SELECT nextval('mailbox.place') AS seq, u.* FROM unnest(p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays, p_ttls, p_priorities) AS u(shard, id, body, grp, extra, delay, ttl, priority)),
    b AS (INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) SELECT n.seq, t, n.grp, n.extra, n.body FROM n)
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, ttl, ends, priority)
      SELECT n.seq, p_qid, n.shard, CASE WHEN d.due > t THEN 'd' WHEN n.priority > 0 THEN 'p' ELSE 'r' END::"char", n.seq, n.seq, d.due, d.due, length(n.body), n.id, d.ttl, d.due + d.ttl, nullif(n.priority, 0)
      FROM n CROSS JOIN LATERAL (SELECT mailbox.due_at(t, n.delay) AS due, coalesce(nullif(n.ttl, 0), v_ttl) AS ttl) d;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- receive leases ready messages to requests, in order. The first row is about the call: request is -1, or -2 if
-- the call has to be made again; seq is the place up to which no sent message is left; nonce is the time;
-- if p_next and a request got nothing, sent_at is when, in the next three seconds, the shard or a queue whose dead letters come here changes next, and deliveries is the
-- number of such queues; first_at is the version of the queue; extra has a character
-- for each request, 1 if only the in-flight limit kept it from getting a message; error has the endings, and
-- body the queues that messages went to; grp has seq for each priority above 0.
CREATE OR REPLACE FUNCTION mailbox.receive(p_qid int, p_shard int, p_max int[], p_bytes bigint[], p_vis bigint[], p_seed bigint,
  p_low bigint, p_low_due bigint, p_next bool, p_wide bool, p_levels bigint[])
RETURNS TABLE (request int, seq bigint, nonce bigint, deliveries int, first_at bigint, sent_at bigint, id uuid, grp bytea, extra bytea,
  body bytea, error bytea, from_reason bytea, from_queue bytea, from_deliveries bytea, from_error bytea, released bool, priority int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE q mailbox.queue; t bigint; v_seqs bigint[]; v_groups bytea[]; v_why int; v_ceiling bigint; v_whys text := ''; v_seed bigint := p_seed;
  v_low bigint := p_low; v_zero bool := false; v_empty bool := false; g record; v_next bigint; v_sources int := 0;
  v_levels bigint[] := p_levels; v_short bool := false;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true); -- a lease that is lost is a redelivery
  PERFORM mailbox.begin_at(p_qid, p_low, p_levels);
  t := mailbox.begin_call(p_qid, ARRAY[p_shard], p_wide, p_low_due);
  IF t IS NULL THEN
    RETURN QUERY SELECT -2, v_low, 0::bigint, 0, 0::bigint, 0::bigint, NULL::uuid, NULL::bytea, NULL::bytea,
      convert_to(coalesce(current_setting('mailboxmq.woken', true), ''), 'UTF8'), convert_to(mailbox.endings(), 'UTF8'), NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, false, 0;
    RETURN;
  END IF;
  q := mailbox.rules(p_qid, p_shard);
  v_ceiling := 1000000000;
  IF q.max_in_flight > 0 THEN
    SELECT q.max_in_flight - c.in_flight INTO v_ceiling FROM mailbox.counts(q, p_shard) c;
  END IF;
  FOR i IN 1 .. cardinality(p_max) LOOP
    v_seqs := '{}';
    v_why := 0;
    IF q.paused OR v_empty THEN
      NULL;
    ELSIF q.is_strict THEN
      SELECT c.seqs, c.groups, c.why INTO v_seqs, v_groups, v_why FROM mailbox.choose_strict(q, p_shard, p_max[i], p_bytes[i], v_ceiling, t) c;
    ELSIF q.is_fair THEN
      SELECT c.seqs, c.groups, c.why INTO v_seqs, v_groups, v_why FROM mailbox.choose_fair(q, p_shard, p_max[i], p_bytes[i], v_ceiling, t) c;
    ELSIF q.leveled THEN
      SELECT c.p_low, c.p_levels, c.seqs, c.why INTO v_low, v_levels, v_seqs, v_why FROM mailbox.choose_levels(q, p_shard, p_max[i], p_bytes[i], v_ceiling, t, v_low, v_levels) c;
    ELSE
      SELECT c.p_low, c.seqs, c.why INTO v_low, v_seqs, v_why FROM mailbox.choose(q, p_shard, p_max[i], p_bytes[i], v_ceiling, t, v_low) c;
    END IF;
    v_whys := v_whys || v_why;
    v_empty := v_seqs = '{}' AND v_why = 0;
    v_short := v_short OR v_seqs = '{}';
    CONTINUE WHEN v_seqs = '{}';
    v_ceiling := v_ceiling - cardinality(v_seqs);
    v_zero := v_zero OR p_vis[i] = 0;
    RETURN QUERY WITH leased AS (
      UPDATE mailbox.message a SET state = 'f', deliveries = a.deliveries + 1, due = t + p_vis[i], first_at = coalesce(a.first_at, t),
        started = a.first_at IS NULL, again = false,
        hold = CASE WHEN q.max_hold > 0 THEN t + greatest(q.max_hold, 10 * p_vis[i]) ELSE 0 END,
        nonce = mailbox.new_nonce(q, a.seq, a.place, v_seed + array_position(v_seqs, a.seq))
        WHERE a.seq = ANY (v_seqs) RETURNING a.*, array_position(v_seqs, a.seq) AS n)
      SELECT i - 1, l.seq, l.nonce, l.deliveries, l.first_at, b.sent_at, l.id, b.grp, b.extra, b.body, l.error,
        l.from_reason, l.from_queue, l.from_deliveries, l.from_error, l.releases > 0, coalesce(l.priority, 0)
      FROM leased l CROSS JOIN LATERAL (SELECT * FROM mailbox.body c WHERE c.seq = l.seq OFFSET 0) b ORDER BY l.n;
    IF q.counted THEN
      PERFORM mailbox.add(p_qid, p_shard, -cardinality(v_seqs), 0, cardinality(v_seqs), 0, 0);
    END IF;
    v_seed := v_seed + cardinality(v_seqs);
    IF q.is_strict OR q.is_fair THEN -- those that were taken from last go behind the others
      FOR g IN SELECT n.name, count(*)::int AS taken FROM unnest(v_groups) WITH ORDINALITY AS n(name, i) GROUP BY n.name ORDER BY max(n.i) LOOP
        PERFORM mailbox.regroup(q, p_shard, g.name, g.taken, true);
      END LOOP;
    END IF;
  END LOOP;
  IF v_zero THEN
    PERFORM mailbox.advance(q, p_shard, t, 0);
  END IF;
  IF p_next AND v_short THEN
    v_next := mailbox.next_due(q, p_shard, t);
    SELECT count(*), least(v_next, min(u.due)) INTO v_sources, v_next FROM mailbox.upstream(p_qid) u;
  END IF;
  IF NOT q.is_strict AND NOT q.is_fair AND 0 = ANY (v_levels || v_low) THEN -- a full look that took nothing of an order
    SELECT c.p_low, c.p_levels INTO v_low, v_levels FROM mailbox.mark(p_qid, p_shard, v_low, v_levels) c;
  END IF;
  RETURN QUERY SELECT -1, v_low, t, v_sources, q.version, v_next, NULL::uuid, convert_to(array_to_string(v_levels, ' '), 'UTF8'), convert_to(v_whys, 'UTF8'),
    convert_to(coalesce(current_setting('mailboxmq.woken', true), ''), 'UTF8'), convert_to(mailbox.endings(), 'UTF8'), NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, false, 0;
END $$;

-- settle settles deliveries, in order. what: a ack, l ack late, n nack (p_numbers: delays, p_reasons: n it failed, r
-- release, p put back), e extend and g extend late (p_numbers: visibilities), k dead-letter (p_reasons, p_types), u undo a
-- delivery that reached no receiver.
-- codes: s settled, x the receipt has expired, f the dead letters are full; null: the call has to be made again.
CREATE OR REPLACE FUNCTION mailbox.settle(p_qid int, p_what text, p_shards int[], p_seqs bigint[], p_nonces bigint[], p_ids uuid[],
  p_numbers bigint[], p_causes bytea[], p_types bytea[], p_reasons text[], p_wide bool, p_low bigint DEFAULT 0, p_low_due bigint DEFAULT 0,
  p_levels bigint[] DEFAULT NULL,
  OUT codes text, OUT grants bigint[], OUT version bigint, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; m mailbox.message; t bigint; v_held bool; v_same bool; v_code text; v_granted bigint;
BEGIN
  IF p_what = 'u' OR (p_what IN ('e', 'g') AND 0 < ALL (p_numbers)) THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSE
    PERFORM mailbox.durable();
  END IF;
  PERFORM mailbox.begin_at(p_qid, p_low, p_levels);
  t := mailbox.begin_call(p_qid, p_shards, p_wide, p_low_due);
  IF t IS NOT NULL THEN
    codes := '';
    FOR i IN 1 .. cardinality(p_seqs) LOOP
      IF q.qid IS NULL OR q.shards > 1 THEN
        q := mailbox.rules(p_qid, p_shards[i]);
      END IF;
      SELECT * INTO m FROM mailbox.message a WHERE a.seq = p_seqs[i] AND a.qid = p_qid AND a.shard = p_shards[i] AND a.id = p_ids[i] FOR UPDATE;
      v_held := FOUND AND m.state = 'f' AND m.nonce = p_nonces[i] AND m.due > t;
      v_same := FOUND AND m.state <> 'x' AND m.replaced IS NULL AND m.deliveries + m.releases > 0 AND p_nonces[i] = mailbox.new_nonce(q, m.seq, m.place, p_nonces[i] >> 32);
      v_code := 'x';
      v_granted := 0;
      IF v_held THEN
        m.error := coalesce(nullif(p_causes[i], ''), m.error);
        SELECT s.code, s.granted INTO v_code, v_granted FROM mailbox.settle_held(q, m, CASE p_what WHEN 'n' THEN p_reasons[i] ELSE p_what END,
          p_numbers[i], p_types[i], p_reasons[i], t) s;
      ELSIF p_what = 'l' AND v_same THEN
        PERFORM mailbox.remove(q, m);
        v_code := 's';
      ELSIF p_what = 'g' AND v_same AND (m.state IN ('b', 'h') OR (m.state = 's' AND q.is_fair)) AND m.nonce = p_nonces[i] AND coalesce(m.ends > t, true)
        AND mailbox.may_lease(q, m.shard) AND mailbox.may_take(q, m) THEN
        v_code := 's';
        IF p_numbers[i] > 0 THEN
          UPDATE mailbox.message a SET state = 'f', due = t + p_numbers[i], again = true,
            hold = CASE WHEN q.max_hold > 0 THEN t + greatest(q.max_hold, 10 * p_numbers[i]) ELSE 0 END WHERE a.seq = m.seq;
          PERFORM mailbox.moved(q, m.shard, m.state, 'f', m.size);
          IF m.grp IS NOT NULL THEN
            PERFORM mailbox.regroup(q, m.shard, m.grp, 1);
          END IF;
        END IF;
      ELSIF p_what = 'u' AND v_same AND m.state IN ('b', 's', 'h') AND m.nonce = p_nonces[i] THEN -- its lease has ended, and no receiver had it
        PERFORM mailbox.undo(q, m, t);
        v_code := 's';
      END IF;
      codes := codes || v_code;
      grants[i] := v_granted;
    END LOOP;
    version := q.version;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- settle_held settles a message that is in flight.
CREATE OR REPLACE FUNCTION mailbox.settle_held(q mailbox.queue, m mailbox.message, p_what text, p_number bigint, p_type bytea, p_reason text, t bigint,
  OUT code text, OUT granted bigint) LANGUAGE plpgsql AS $$
BEGIN
  code := 's';
  granted := 0;
  CASE p_what
  WHEN 'a', 'l' THEN
    PERFORM mailbox.remove(q, m);
  WHEN 'n', 'r', 'p' THEN
    m := mailbox.end_delivery(m, p_what);
    IF p_what <> 'n' AND m.releases > 0 THEN
      PERFORM mailbox.refund(q, m);
    END IF;
    PERFORM mailbox.requeue(q, m,
      CASE WHEN p_what = 'r' OR q.is_strict OR mailbox.exhausted(q, m) THEN m.place ELSE nextval('mailbox.place') END, p_number, t);
  WHEN 'e', 'g' THEN
    granted := p_number;
    IF m.hold > 0 THEN
      granted := greatest(least(granted, m.hold - t), 0);
    END IF;
    IF granted > 0 THEN
      UPDATE mailbox.message a SET due = t + granted WHERE a.seq = m.seq;
    ELSE
      PERFORM mailbox.requeue(q, mailbox.end_delivery(m, 'n'), m.place, 0, t);
    END IF;
  WHEN 'k' THEN
    IF mailbox.dead_full(q, m, p_reason) THEN
      code := 'f';
    ELSE
      m.error_type := p_type;
      PERFORM mailbox.die(q, m, p_reason, t);
      PERFORM mailbox.expire_by_count(q, m.shard, t);
    END IF;
  WHEN 'u' THEN
    PERFORM mailbox.undo(q, m, t);
  END CASE;
END $$;

-- purge removes the messages of a queue that are not dead, or its dead letters, and counts them.
CREATE OR REPLACE FUNCTION mailbox.purge(p_qid int, p_dead bool, p_wide bool, OUT removed bigint, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); v_shards int[] := ARRAY(SELECT generate_series(0, q.shards - 1));
BEGIN
  PERFORM mailbox.durable();
  IF mailbox.begin_call(p_qid, v_shards, p_wide, 0) IS NOT NULL THEN
    removed := mailbox.delete_all(CASE WHEN p_dead THEN mailbox.dead_of(p_qid) ELSE mailbox.waiting_of(p_qid) END);
    IF NOT p_dead THEN
      PERFORM mailbox.empty_groups(q);
    ELSE
      PERFORM mailbox.advance(mailbox.rules(p_qid, s), s, mailbox.clock(), 0) FROM unnest(v_shards) s; -- retention may have waited for room
    END IF;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- delete_queue deletes a queue with everything in it.
CREATE OR REPLACE FUNCTION mailbox.delete_queue(p_name text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE v_qid int;
BEGIN
  PERFORM mailbox.durable();
  v_qid := mailbox.lock_queue(p_name);
  DELETE FROM mailbox.queue a WHERE a.qid = v_qid;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM mailbox.delete_all(mailbox.waiting_of(v_qid) || mailbox.dead_of(v_qid));
  DELETE FROM mailbox.body b WHERE b.seq = ANY (ARRAY(SELECT a.seq FROM mailbox.inbox a WHERE a.qid = v_qid AND a.kind = 's'));
  DELETE FROM mailbox.inbox a WHERE a.qid = v_qid;
  DELETE FROM mailbox.strict_group g WHERE g.qid = v_qid;
  DELETE FROM mailbox.group_limit l WHERE l.qid = v_qid;
  DELETE FROM mailbox.dedup d WHERE d.qid = v_qid;
  DELETE FROM mailbox.schedule s WHERE s.qid = v_qid;
  DELETE FROM mailbox.tally a WHERE a.qid = v_qid;
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION mailbox.ack_tx(p_qid int, p_shard int, p_seq bigint, p_nonce bigint, p_id uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.begin_tx(p_qid); m mailbox.message;
BEGIN
  DELETE FROM mailbox.message a WHERE a.seq = p_seq AND a.qid = p_qid AND a.shard = p_shard AND a.id = p_id AND a.state::text = 'f'
    AND a.nonce = p_nonce AND a.due > mailbox.clock() RETURNING * INTO m;
  IF m.seq IS NULL THEN
    RETURN NULL;
  END IF;
  DELETE FROM mailbox.body b WHERE b.seq = p_seq;
  INSERT INTO mailbox.inbox (qid, shard, kind, size, grp) VALUES (p_qid, p_shard, CASE WHEN m.grp IS NOT NULL THEN 'g' ELSE 'c' END, m.size, m.grp);
  RETURN pg_current_xact_id()::text;
END $$;

-- ack, ack_tx and nack_tx are those of before, but look messages up by their key in any case: as text, state does not match the condition of the index of
-- deadlines, which would be read from now to the last lease. While a transaction is held open that walks over every lease that was acked.
CREATE OR REPLACE FUNCTION mailbox.ack(p_qid int, p_shards int[], p_seqs bigint[], p_nonces bigint[], p_ids uuid[]) RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE t bigint; v_counted bool; v_fair bool; m mailbox.message;
BEGIN
  PERFORM mailbox.durable();
  PERFORM pg_advisory_xact_lock_shared(mailbox.lock_key(3, p_qid, 0)); -- see start_counting
  t := mailbox.clock();
  SELECT a.counted, a.is_fair INTO v_counted, v_fair FROM mailbox.queue a WHERE a.qid = p_qid;
  IF v_fair THEN -- a process of the version before calls this; others settle
    PERFORM mailbox.lock(0, p_qid, p_shards);
    t := mailbox.clock();
    FOR i IN 1 .. cardinality(p_seqs) LOOP
      SELECT * INTO m FROM mailbox.message b WHERE b.seq = p_seqs[i] AND b.qid = p_qid AND b.shard = p_shards[i] AND b.state::text = 'f'
        AND b.nonce = p_nonces[i] AND b.id = p_ids[i] AND b.due > t FOR UPDATE;
      IF FOUND THEN
        PERFORM mailbox.remove(mailbox.rules(p_qid, m.shard), m);
        RETURN NEXT i;
      END IF;
    END LOOP;
    RETURN;
  END IF;
  RETURN QUERY WITH held AS MATERIALIZED (
      SELECT a.seq, u.n, u.shard, a.size FROM (SELECT * FROM unnest(p_shards, p_seqs, p_nonces, p_ids) WITH ORDINALITY AS v(shard, seq, nonce, id, n) ORDER BY v.seq) u
      CROSS JOIN LATERAL (SELECT b.seq, b.size FROM mailbox.message b WHERE b.seq = u.seq AND b.qid = p_qid AND b.shard = u.shard AND b.state::text = 'f'
        AND b.nonce = u.nonce AND b.id = u.id AND b.due > t FOR UPDATE) a),
    gone AS (DELETE FROM mailbox.message a WHERE a.seq = ANY (ARRAY(SELECT h.seq FROM held h))),
    bodies AS (DELETE FROM mailbox.body b WHERE b.seq = ANY (ARRAY(SELECT h.seq FROM held h))),
    added AS MATERIALIZED (SELECT mailbox.add(p_qid, h.shard, 0, 0, -count(*), 0, -sum(h.size))
      FROM (SELECT DISTINCT d.seq, d.shard, d.size FROM held d) h WHERE v_counted GROUP BY h.shard)
    SELECT min(h.n)::int FROM held h WHERE (SELECT count(*) FROM added) >= 0 GROUP BY h.seq;
END $$;

-- advance handles what has fallen due up to now, each at its own time and in the order of those times. p_low is
-- a time up to which the caller knows that nothing is left. It reports false if there is more to do than one
-- call should: the caller commits, and calls again. A row that a settling transaction has locked is passed over:
-- that transaction was in time.
CREATE OR REPLACE FUNCTION mailbox.advance(q mailbox.queue, p_shard int, p_now bigint, p_low bigint) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_at bigint := 0; v_fired int; v_budget int := 1000;
  v_events int := 1000; v_passes bool := q.ready_age > 0 OR q.dead_age > 0 OR q.mortal;
BEGIN
  PERFORM mailbox.trim_dead(q, p_shard);
  LOOP
    v_fired := 0;
    FOR m IN SELECT * FROM mailbox.message a
      WHERE a.qid = q.qid AND a.shard = p_shard AND a.state IN ('d', 'w', 'f') AND a.due > p_low AND a.due <= p_now
      ORDER BY a.due, a.arrived LIMIT v_budget FOR UPDATE SKIP LOCKED LOOP
      IF v_passes THEN
        SELECT p.p_at, p.p_budget INTO v_at, v_events FROM mailbox.pass(q, p_shard, p_low, m.due, false, v_at, v_events) p;
        IF v_events <= 0 THEN
          RETURN false;
        END IF;
        -- Its life may just have ended. As text, state does not match the condition of a partial index.
        CONTINUE WHEN q.mortal AND NOT EXISTS (SELECT FROM mailbox.message a WHERE a.seq = m.seq AND a.qid = q.qid AND a.state::text = m.state::text AND a.due = m.due);
      END IF;
      IF m.due > v_at THEN
        v_at := m.due;
        PERFORM mailbox.pass_time(q, p_shard);
      END IF;
      PERFORM mailbox.fire(q, m, v_at);
      v_fired := v_fired + 1;
    END LOOP;
    EXIT WHEN v_fired = 0;
    v_budget := v_budget - v_fired;
    IF v_budget <= 0 THEN
      RETURN false;
    END IF;
  END LOOP;
  IF v_passes THEN
    SELECT p.p_at, p.p_budget INTO v_at, v_events FROM mailbox.pass(q, p_shard, p_low, p_now, true, v_at, v_events) p;
    IF v_events <= 0 THEN
      RETURN false;
    END IF;
  END IF;
  PERFORM mailbox.pass_time(q, p_shard);
  PERFORM mailbox.expire_by_count(q, p_shard, p_now);
  RETURN NOT q.limited OR mailbox.wake_groups(q, p_shard, p_low, p_now);
END $$;

-- measure counts the messages of a queue by shard.
CREATE FUNCTION mailbox.measure(p_qid int, p_ages bool, p_wide bool, p_low bigint, p_low_due bigint, p_levels bigint[])
RETURNS TABLE (shard int, done bool, ready bigint, delayed bigint, in_flight bigint, dead bigint, bytes bigint, keys bigint,
  oldest_ready bigint, oldest_dead bigint, paused bool, version bigint, woken text, endings text, throttled bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); t bigint; v_keys bigint; m mailbox.message; v_age bigint; v_dead bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM mailbox.begin_at(p_qid, p_low, p_levels);
  t := mailbox.begin_call(p_qid, ARRAY(SELECT generate_series(0, q.shards - 1)), p_wide, p_low_due);
  PERFORM mailbox.start_counting(p_qid);
  q := mailbox.rules(p_qid, 0);
  FOR n IN 0 .. q.shards - 1 LOOP
    v_keys := NULL;
    v_age := 0;
    v_dead := 0;
    IF p_ages THEN
      SELECT count(*) INTO v_keys FROM mailbox.dedup d WHERE d.qid = p_qid AND d.ends > t AND n = 0;
      IF q.ready_age > 0 THEN
        m := mailbox.oldest_ready(p_qid, n, q.leveled);
        v_age := coalesce(greatest(t - m.born, 0), 0);
      END IF;
      SELECT greatest(t - min(a.born), 0) INTO v_dead FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = n AND a.state = 'x';
    END IF;
    RETURN QUERY SELECT n, t IS NOT NULL, c.ready, c.delayed, c.in_flight, c.dead, c.bytes,
      v_keys, v_age, coalesce(v_dead, 0), q.paused, q.version, current_setting('mailboxmq.woken', true), mailbox.endings(), mailbox.throttled(q, n)
      FROM mailbox.counts(q, n) c;
  END LOOP;
END $$;

-- usage is measure for processes of the version before.
CREATE OR REPLACE FUNCTION mailbox.usage(p_qid int, p_ages bool, p_wide bool, p_low bigint DEFAULT 0, p_low_due bigint DEFAULT 0, p_levels bigint[] DEFAULT NULL)
RETURNS TABLE (shard int, done bool, ready bigint, delayed bigint, in_flight bigint, dead bigint, bytes bigint, keys bigint,
  oldest_ready bigint, oldest_dead bigint, paused bool, version bigint, woken text, endings text) LANGUAGE sql AS $$
  SELECT m.shard, m.done, m.ready, m.delayed, m.in_flight, m.dead, m.bytes, m.keys, m.oldest_ready, m.oldest_dead, m.paused, m.version, m.woken, m.endings
    FROM mailbox.measure(p_qid, p_ages, p_wide, p_low, p_low_due, p_levels) m $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND p.proname IN ('send_from', 'receive', 'ack', 'settle', 'measure', 'usage', 'purge', 'redrive', 'delete_queue', 'ack_tx', 'throttle', 'set_limits') LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
