-- Claims on queues with groups cost the same, however many versions of rows a transaction that is held open keeps (decision 0070). What a call looks for is
-- found newest first, or behind a mark that is written in the same transaction:
--
--   version      of a group, from the sequence of places; the latest row is the first that a look from the end of the key meets
--   first_ready  no message of the group in state s is before this place
--   first_held   none in states f and w is, in queues with strict groups
--
-- Messages that are sent, redriven or moved have places that no row has seen, so only put, which gives messages old places, lowers the two.
ALTER TABLE mailbox.strict_group ADD COLUMN version bigint NOT NULL DEFAULT 0, ADD COLUMN first_ready bigint NOT NULL DEFAULT 0, ADD COLUMN first_held bigint NOT NULL DEFAULT 0,
  DROP CONSTRAINT strict_group_pkey;
UPDATE mailbox.strict_group SET version = nextval('mailbox.place');
ALTER TABLE mailbox.strict_group ADD PRIMARY KEY (qid, shard, name, version);
DROP INDEX mailbox.strict_group_idle;
CREATE INDEX strict_group_idle ON mailbox.strict_group (qid, shard, version) WHERE idle;

-- Where the turns of a shard begin: no group of rank ranks[i] stands before lows[i], and none of another rank stands. No group that
-- is idle has a version up to forgotten. The latest row counts.
CREATE TABLE mailbox.turn (
  qid int NOT NULL,
  shard int NOT NULL,
  version bigint NOT NULL,
  ranks int[] NOT NULL,
  lows bigint[] NOT NULL,
  forgotten bigint NOT NULL,
  PRIMARY KEY (qid, shard, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
INSERT INTO mailbox.turn SELECT r.qid, r.shard, 0, array_agg(r.rank), array_agg(r.low), 0
  FROM (SELECT g.qid, g.shard, g.rank, min(g.stands) AS low FROM mailbox.strict_group g WHERE g.stands IS NOT NULL GROUP BY g.qid, g.shard, g.rank) r GROUP BY r.qid, r.shard;

-- migrated_turns is a time after which no call is made by functions of before. A schema without queues has none.
DO $$
BEGIN
  EXECUTE format('CREATE FUNCTION mailbox.migrated_turns() RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $f$ SELECT to_timestamp(%s) $f$',
    CASE WHEN EXISTS (SELECT FROM mailbox.queue) THEN extract(epoch FROM clock_timestamp()) + 60 ELSE 0 END);
END $$;

-- group_row returns a group, or a row of nulls.
CREATE FUNCTION mailbox.group_row(p_qid int, p_shard int, p_name bytea) RETURNS mailbox.strict_group LANGUAGE plpgsql AS $$
DECLARE g mailbox.strict_group;
BEGIN
  SELECT * INTO g FROM mailbox.strict_group a WHERE a.qid = p_qid AND a.shard = p_shard AND a.name = p_name ORDER BY a.version DESC LIMIT 1;
  RETURN g;
END $$;

-- turn_of returns where the turns of a shard begin.
CREATE FUNCTION mailbox.turn_of(p_qid int, p_shard int) RETURNS mailbox.turn LANGUAGE plpgsql AS $$
DECLARE k mailbox.turn;
BEGIN
  SELECT * INTO k FROM mailbox.turn a WHERE a.qid = p_qid AND a.shard = p_shard ORDER BY a.version DESC LIMIT 1;
  IF k.qid IS NULL THEN
    k := ROW(p_qid, p_shard, -1, '{}', '{}', 0);
  END IF;
  RETURN k;
END $$;

-- keep_turn writes what turn_of returned, changed.
CREATE FUNCTION mailbox.keep_turn(k mailbox.turn) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE mailbox.turn a SET version = nextval('mailbox.place'), ranks = k.ranks, lows = k.lows, forgotten = k.forgotten
    WHERE a.qid = k.qid AND a.shard = k.shard AND a.version = k.version;
  IF NOT FOUND THEN
    INSERT INTO mailbox.turn VALUES (k.qid, k.shard, nextval('mailbox.place'), k.ranks, k.lows, k.forgotten);
  END IF;
END $$;

-- stand notes that a group of a rank stands at a place.
CREATE FUNCTION mailbox.stand(p_qid int, p_shard int, p_rank int, p_stands bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k mailbox.turn := mailbox.turn_of(p_qid, p_shard); v_lows bigint[] := k.lows; n int := array_position(k.ranks, p_rank);
BEGIN
  IF v_lows[n] <= p_stands THEN
    RETURN;
  ELSIF n IS NULL THEN
    k.ranks := k.ranks || p_rank;
    v_lows := v_lows || p_stands;
  ELSE
    v_lows[n] := p_stands;
  END IF;
  k.lows := v_lows;
  PERFORM mailbox.keep_turn(k);
END $$;

-- standing returns the first groups that can be received from, in the order of their turns, and keeps where they begin.
CREATE FUNCTION mailbox.standing(q mailbox.queue, p_shard int, p_max int) RETURNS mailbox.strict_group[] LANGUAGE plpgsql AS $$
DECLARE k mailbox.turn := mailbox.turn_of(q.qid, p_shard); r record; v_found mailbox.strict_group[] := '{}'; v_part mailbox.strict_group[];
  v_ranks int[] := '{}'; v_lows bigint[] := '{}';
BEGIN
  FOR r IN SELECT * FROM unnest(k.ranks, k.lows) AS u(rank, low) ORDER BY u.rank LOOP
    IF cardinality(v_found) < p_max THEN
      v_part := ARRAY(SELECT a FROM mailbox.strict_group a WHERE a.qid = q.qid AND a.shard = p_shard AND a.rank = r.rank AND a.stands >= r.low AND a.stands IS NOT NULL
        ORDER BY a.stands LIMIT p_max - cardinality(v_found));
      CONTINUE WHEN cardinality(v_part) = 0;
      r.low := (v_part[1]).stands;
      v_found := v_found || v_part;
    END IF;
    v_ranks := v_ranks || r.rank;
    v_lows := v_lows || r.low;
  END LOOP;
  IF v_ranks <> k.ranks OR v_lows <> k.lows THEN
    k.ranks := v_ranks;
    k.lows := v_lows;
    PERFORM mailbox.keep_turn(k);
  END IF;
  RETURN v_found;
END $$;

-- survey finds out where the turns of a shard begin, without the marks: calls that began before this migration did not keep them.
CREATE FUNCTION mailbox.survey(p_qid int, p_shard int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k mailbox.turn := mailbox.turn_of(p_qid, p_shard); g record; v_rank int := -1; v_ranks int[] := '{}'; v_lows bigint[] := '{}';
BEGIN
  LOOP
    SELECT a.rank, a.stands INTO g FROM mailbox.strict_group a WHERE a.qid = p_qid AND a.shard = p_shard AND a.rank > v_rank AND a.stands IS NOT NULL
      ORDER BY a.rank, a.stands LIMIT 1;
    EXIT WHEN NOT FOUND;
    v_rank := g.rank;
    v_ranks := v_ranks || g.rank;
    v_lows := v_lows || g.stands;
  END LOOP;
  IF v_ranks <> k.ranks OR v_lows <> k.lows THEN
    k.ranks := v_ranks;
    k.lows := v_lows;
    PERFORM mailbox.keep_turn(k);
  END IF;
END $$;

-- begin_call locks shards and advances them to now. It returns null if the call has to be made again.
CREATE OR REPLACE FUNCTION mailbox.begin_call(p_qid int, p_shards int[], p_wide bool, p_low bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; v_shard int; v_done bool := true; t bigint;
BEGIN
  IF p_wide THEN
    PERFORM mailbox.lock_wide(ARRAY(SELECT a.name FROM mailbox.queue a WHERE a.qid = p_qid));
  ELSE
    PERFORM mailbox.lock(0, p_qid, p_shards);
  END IF;
  t := mailbox.clock();
  FOR v_shard IN SELECT DISTINCT s FROM unnest(p_shards) s ORDER BY s LOOP
    q := mailbox.rules(p_qid, v_shard);
    v_done := mailbox.advance(q, v_shard, t, p_low) AND v_done;
    IF p_low = 0 AND (q.is_strict OR q.is_fair) THEN
      PERFORM mailbox.survey(p_qid, v_shard);
    END IF;
  END LOOP;
  RETURN CASE WHEN v_done THEN t END;
END $$;

-- regroup puts a group where it belongs after a change, by which it has p_more messages in flight: it can be received from if its first ready
-- message is before all that block it, and it is below its limit. p_served says that these messages were received: they take tokens, and the group goes
-- behind the others. p_place is where a message waits that may have waited or been delivered before. A group without messages forgets its turn, and stays for a while: the
-- next message finds its row, and walks over none that is gone.
DROP FUNCTION mailbox.regroup(mailbox.queue, int, bytea, int, bool);
CREATE FUNCTION mailbox.regroup(q mailbox.queue, p_shard int, p_name bytea, p_more int, p_served bool DEFAULT false, p_place bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE o mailbox.strict_group := mailbox.group_row(q.qid, p_shard, p_name); g mailbox.strict_group := o; l record; v_head bigint; v_blocker bigint; v_now bigint; v_next bigint;
BEGIN
  IF o.qid IS NULL THEN
    g := ROW(q.qid, p_shard, p_name, NULL, 0, false, 0, 0, 0, 0, false, NULL, 0, 0, 0);
  END IF;
  IF p_place IS NULL AND now() < mailbox.migrated_turns() THEN -- put of before does not say where
    p_place := 0;
  END IF;
  IF p_more > 0 THEN -- they were ready
    g.first_held := least(g.first_held, g.first_ready);
  END IF;
  g.first_ready := least(g.first_ready, p_place);
  g.first_held := least(g.first_held, p_place);
  SELECT m.place INTO v_head FROM mailbox.message m
    WHERE m.qid = q.qid AND m.shard = p_shard AND m.grp = p_name AND m.state = 's' AND m.place >= g.first_ready ORDER BY m.place LIMIT 1;
  IF substr(p_name, 1, 1) = '\xff' AND v_head IS NULL THEN -- it has no turn that could be remembered
    DELETE FROM mailbox.strict_group a WHERE a.qid = q.qid AND a.shard = p_shard AND a.name = p_name AND a.version = o.version;
    RETURN;
  END IF;
  IF q.is_strict THEN
    SELECT m.place INTO v_blocker FROM mailbox.message m
      WHERE m.qid = q.qid AND m.shard = p_shard AND m.grp = p_name AND m.state IN ('f', 'w') AND m.grp IS NOT NULL AND m.place >= g.first_held ORDER BY m.place LIMIT 1;
  END IF;
  g.busy := greatest(g.busy + p_more, 0);
  g.rank := CASE WHEN q.is_fair THEN g.busy ELSE 0 END;
  g.idle := v_head IS NULL AND v_blocker IS NULL AND (q.is_strict OR g.busy = 0);
  g.is_over := false;
  g.wakes := NULL;
  IF g.idle THEN
    g.served := 0;
  ELSIF p_served THEN
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
  g.first_ready := coalesce(v_head, g.first_ready);
  g.first_held := coalesce(v_blocker, g.first_held);
  IF g IS NOT DISTINCT FROM o OR (o.qid IS NULL AND g.idle) THEN
    RETURN;
  END IF;
  g.version := nextval('mailbox.place'); -- messages that come later have later places
  g.first_ready := coalesce(v_head, g.version);
  g.first_held := coalesce(v_blocker, g.version);
  IF o.qid IS NULL THEN
    INSERT INTO mailbox.strict_group SELECT g.*;
  ELSE
    UPDATE mailbox.strict_group a SET stands = g.stands, served = g.served, idle = g.idle, busy = g.busy, rank = g.rank, fills = g.fills, is_over = g.is_over, wakes = g.wakes,
      version = g.version, first_ready = g.first_ready, first_held = g.first_held WHERE a.qid = q.qid AND a.shard = p_shard AND a.name = p_name AND a.version = o.version;
  END IF;
  IF g.stands IS NOT NULL AND (g.rank, g.stands) IS DISTINCT FROM (o.rank, o.stands) THEN
    PERFORM mailbox.stand(q.qid, p_shard, g.rank, g.stands);
  END IF;
END $$;

-- refund gives the token of a delivery back that did not count. The bucket of a throttled group stays empty. regroup is called after it.
CREATE OR REPLACE FUNCTION mailbox.refund(q mailbox.queue, m mailbox.message) RETURNS void LANGUAGE plpgsql AS $$
DECLARE g mailbox.strict_group; l record; v_now bigint;
BEGIN
  IF q.limited AND mailbox.is_group(m.grp) THEN
    l := mailbox.limit_of(q, m.grp);
    v_now := mailbox.clock();
    g := mailbox.group_row(q.qid, m.shard, m.grp);
    UPDATE mailbox.strict_group a SET fills = CASE WHEN g.until > v_now THEN greatest(g.fills - l.spacing, g.until + l.slack) ELSE g.fills - l.spacing END
      WHERE a.qid = q.qid AND a.shard = m.shard AND a.name = m.grp AND a.version = g.version;
  END IF;
END $$;

-- may_take says whether the group of a message may have one more in flight.
CREATE OR REPLACE FUNCTION mailbox.may_take(q mailbox.queue, m mailbox.message) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE l record;
BEGIN
  IF NOT q.limited OR m.grp IS NULL THEN
    RETURN true;
  END IF;
  l := mailbox.limit_of(q, m.grp);
  RETURN l.in_flight = 0 OR l.in_flight > coalesce((mailbox.group_row(q.qid, m.shard, m.grp)).busy, 0);
END $$;

-- throttled counts the ready messages of groups at their limit, 10,000 at most.
CREATE OR REPLACE FUNCTION mailbox.throttled(q mailbox.queue, p_shard int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF NOT q.limited THEN
    RETURN 0;
  END IF;
  RETURN (SELECT count(*) FROM (SELECT FROM mailbox.strict_group g CROSS JOIN LATERAL (SELECT FROM mailbox.message a
    WHERE a.qid = q.qid AND a.shard = p_shard AND a.grp = g.name AND a.state = 's' AND a.place >= g.first_ready LIMIT 10000) z
    WHERE g.qid = q.qid AND g.shard = p_shard AND g.is_over LIMIT 10000) y);
END $$;

-- pass_time forgets groups that have stayed without messages while 100,000 places were given away, and whose buckets are full.
CREATE OR REPLACE FUNCTION mailbox.pass_time(q mailbox.queue, p_shard int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k mailbox.turn; g record; v_now bigint; v_top bigint; v_done bigint; v_seen int := 0;
BEGIN
  IF NOT q.is_strict AND NOT q.is_fair THEN
    RETURN;
  END IF;
  k := mailbox.turn_of(q.qid, p_shard);
  v_top := nextval('mailbox.place');
  v_done := v_top;
  FOR g IN SELECT a.name, a.version, greatest(a.fills, a.until) AS full_at FROM mailbox.strict_group a
    WHERE a.qid = q.qid AND a.shard = p_shard AND a.idle AND a.version > k.forgotten ORDER BY a.version LIMIT 500 LOOP
    v_seen := v_seen + 1;
    v_done := CASE WHEN v_seen = 500 THEN g.version ELSE v_top END;
    IF g.version > v_top - 100000 THEN
      v_done := g.version - 1;
      EXIT;
    END IF;
    v_now := coalesce(v_now, mailbox.clock());
    IF g.full_at <= v_now THEN
      DELETE FROM mailbox.strict_group a WHERE a.qid = q.qid AND a.shard = p_shard AND a.name = g.name AND a.version = g.version;
    ELSE
      UPDATE mailbox.strict_group a SET version = nextval('mailbox.place') WHERE a.qid = q.qid AND a.shard = p_shard AND a.name = g.name AND a.version = g.version;
    END IF;
  END LOOP;
  IF v_done > k.forgotten + 100 THEN
    k.forgotten := v_done;
    PERFORM mailbox.keep_turn(k);
  END IF;
END $$;

-- choose_fair returns the messages of a batch in a queue with fair groups, and the group of each. Each message is of the group with the fewest messages in flight, and of those
-- of the one that stands first. A group that is taken from goes behind the others that have as many in flight then, so the
-- n-th message of a group with b in flight comes after all of groups with fewer than b + n - 1, and of those with as many before the ones of groups that had
-- fewer at first: one order gives the whole batch. Only the first p_max groups can be in it.
CREATE OR REPLACE FUNCTION mailbox.choose_fair(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
  OUT seqs bigint[], OUT groups bytea[], OUT why int) LANGUAGE plpgsql AS $$
DECLARE v_groups mailbox.strict_group[]; v_quotas bigint[]; v_found mailbox.message[]; m mailbox.message; v_deep int; v_more bool; v_size bigint; v_again bool := true;
BEGIN
  WHILE v_again LOOP
    v_again := false;
    seqs := '{}';
    groups := '{}';
    why := 0;
    v_size := 0;
    v_groups := mailbox.standing(q, p_shard, p_max);
    EXIT WHEN cardinality(v_groups) = 0;
    v_quotas := ARRAY(SELECT mailbox.quota(q, v_groups[n], t) FROM generate_subscripts(v_groups, 1) n ORDER BY n);
    v_deep := v_groups[1].rank + (p_max - 1) / cardinality(v_groups); -- up to so many in flight
    LOOP
      SELECT array_agg(z.message ORDER BY z.rank + z.n, z.rank DESC, z.stands), coalesce(bool_or(z.n = z.look AND z.n < z.quota), false) INTO v_found, v_more FROM (
        SELECT h.message, h.n, g.rank, g.stands, l.look, v_quotas[g.i] AS quota FROM unnest(v_groups) WITH ORDINALITY AS g(qid, shard, name, stands, served, idle, busy, rank, fills, until, is_over, wakes, version, first_ready, first_held, i)
          CROSS JOIN LATERAL (SELECT greatest(v_deep + 1 - g.rank, 0) AS look) l
          CROSS JOIN LATERAL (SELECT a AS message, row_number() OVER (ORDER BY a.place) AS n FROM mailbox.message a
            WHERE a.qid = q.qid AND a.shard = p_shard AND a.grp = g.name AND a.state = 's' AND a.place >= g.first_ready ORDER BY a.place LIMIT least(l.look, v_quotas[g.i])) h) z;
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

-- choose_strict is choose for a queue with strict groups: group by group, those that were received from
-- longest ago first. The messages that it takes do not block each other.
CREATE OR REPLACE FUNCTION mailbox.choose_strict(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
  OUT seqs bigint[], OUT groups bytea[], OUT why int) LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; g mailbox.strict_group; v_groups mailbox.strict_group[]; v_again bool; v_quota bigint; v_seen bytea[] := '{}'; v_bound bigint; v_size bigint := 0; v_got int := 0; v_before int;
BEGIN
  seqs := '{}';
  groups := '{}';
  why := 0;
  LOOP
    EXIT WHEN v_got >= p_max;
    v_groups := ARRAY(SELECT u FROM unnest(mailbox.standing(q, p_shard, cardinality(v_seen) + p_max - v_got)) u WHERE u.name <> ALL (v_seen));
    EXIT WHEN cardinality(v_groups) = 0;
    FOREACH g IN ARRAY v_groups LOOP
      v_again := false;
      SELECT a.place INTO v_bound FROM mailbox.message a
        WHERE a.qid = q.qid AND a.shard = p_shard AND a.grp = g.name AND a.state IN ('f', 'w') AND a.grp IS NOT NULL AND a.place >= g.first_held ORDER BY a.place LIMIT 1;
      v_seen := v_seen || g.name;
      v_before := v_got;
      v_quota := mailbox.quota(q, g, t);
      FOR m IN SELECT * FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.grp = g.name AND a.state = 's' AND a.place >= g.first_ready
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
            v_again := true;
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
      EXIT WHEN v_again OR v_got >= p_max;
    END LOOP;
  END LOOP;
END $$;

-- throttle delivers no message of a group for a time, or longer if it is throttled already; then its bucket is empty. A time of 0 ends that. code is f if 1,000 groups
-- of the queue are throttled, and p_wait then the time until one is not, and null if the call has to be made again.
CREATE OR REPLACE FUNCTION mailbox.throttle(p_qid int, p_shard int, p_name bytea, INOUT p_wait bigint, p_wide bool, OUT code text, OUT version bigint, OUT woken text, OUT endings text)
LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; g mailbox.strict_group; l record; t bigint; v_first bigint; v_count int;
BEGIN
  PERFORM mailbox.durable();
  t := mailbox.begin_call(p_qid, ARRAY[p_shard], p_wide, 0);
  IF t IS NOT NULL THEN
    UPDATE mailbox.queue a SET limited = true WHERE a.qid = p_qid AND NOT a.limited;
    q := mailbox.rules(p_qid, p_shard);
    version := q.version;
    code := 's';
    l := mailbox.limit_of(q, p_name);
    g := mailbox.group_row(p_qid, p_shard, p_name);
    IF p_wait = 0 THEN
      UPDATE mailbox.strict_group a SET until = 0, fills = least(a.fills, t + l.slack) WHERE a.qid = p_qid AND a.shard = p_shard AND a.name = p_name AND a.version = g.version;
    ELSE
      SELECT count(*), min(o.until) INTO v_count, v_first FROM (SELECT a.until FROM mailbox.strict_group a
        WHERE a.qid = p_qid AND a.until > t AND a.until > 0 AND (a.shard, a.name) <> (p_shard, p_name) ORDER BY a.until LIMIT 1000) o;
      IF v_count = 1000 AND NOT coalesce(g.until > t, false) THEN
        code := 'f';
        p_wait := v_first - t;
      ELSE
        g.until := greatest(g.until, t + p_wait);
        g.fills := greatest(g.fills, g.until + l.slack);
        IF g.qid IS NULL THEN
          INSERT INTO mailbox.strict_group (qid, shard, name, version, until, fills) VALUES (p_qid, p_shard, p_name, nextval('mailbox.place'), g.until, g.fills);
        ELSE
          UPDATE mailbox.strict_group a SET until = g.until, fills = g.fills WHERE a.qid = p_qid AND a.shard = p_shard AND a.name = p_name AND a.version = g.version;
        END IF;
      END IF;
    END IF;
    PERFORM mailbox.regroup(q, p_shard, p_name, 0);
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- set_limits changes the limits of the groups of a queue: names, and three numbers for each, as the columns of group_limit. A bucket is at most empty.
CREATE OR REPLACE FUNCTION mailbox.set_limits(p_qid int, p_names bytea[], p_numbers bigint[]) RETURNS void LANGUAGE plpgsql AS $$
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
  FOR g IN SELECT a.shard, a.name, a.version FROM mailbox.strict_group a WHERE a.qid = p_qid LOOP
    l := mailbox.limit_of(q, g.name);
    UPDATE mailbox.strict_group a SET fills = least(a.fills, greatest(v_now, a.until) + l.slack + l.spacing) WHERE a.qid = p_qid AND a.shard = g.shard AND a.name = g.name AND a.version = g.version;
    PERFORM mailbox.regroup(q, g.shard, g.name, 0);
  END LOOP;
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
    PERFORM mailbox.regroup(q, m.shard, m.grp, -(c.old = 'f')::int, false, p_place);
  END IF;
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
  DELETE FROM mailbox.turn k WHERE k.qid = v_qid;
  DELETE FROM mailbox.group_limit l WHERE l.qid = v_qid;
  DELETE FROM mailbox.dedup d WHERE d.qid = v_qid;
  DELETE FROM mailbox.schedule s WHERE s.qid = v_qid;
  DELETE FROM mailbox.tally a WHERE a.qid = v_qid;
  RETURN true;
END $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND p.proname IN ('delete_queue', 'throttle', 'set_limits') LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
