-- Claims on queues without groups cost the same, however many messages have come back and gone while a transaction is held open (decision 0075).
--
-- Messages that are ready again (states b and h) may be at any place, so no process knows where the first one is. The row knows: every such message of an order is in
-- one of its ranges. Order 0 is that of messages without a priority, and n that of priority n. Of queues with retention of ready messages, order 10 has the times at which messages
-- in states b and s were born, and 11 those of messages in state h. The last range of an order is open; the ones before it are around old places to
-- which a message came back. The latest row of a shard counts, and is found first, from the end of its key (decision 0053). A shard without a row has had no such message.
CREATE TABLE mailbox.back (
  qid int NOT NULL,
  shard int NOT NULL,
  version bigint NOT NULL,
  orders int[] NOT NULL,
  lows bigint[] NOT NULL,
  highs bigint[] NOT NULL,
  PRIMARY KEY (qid, shard, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
INSERT INTO mailbox.back SELECT q.qid, s, 0, ARRAY(SELECT generate_series(0, 11)), array_fill(0::bigint, ARRAY[12]), array_fill(9223372036854775807, ARRAY[12])
  FROM mailbox.queue q CROSS JOIN LATERAL generate_series(0, q.shards - 1) s;

-- migrated_back is a time after which no call is made by functions of before, which do not say what comes back. A schema without queues has none.
DO $$
BEGIN
  EXECUTE format('CREATE FUNCTION mailbox.migrated_back() RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $f$ SELECT to_timestamp(%s) $f$',
    CASE WHEN EXISTS (SELECT FROM mailbox.queue) THEN extract(epoch FROM clock_timestamp()) + 60 ELSE 0 END);
END $$;

-- back_of returns where messages that are ready again can be, or a row of nulls.
CREATE FUNCTION mailbox.back_of(p_qid int, p_shard int) RETURNS mailbox.back LANGUAGE plpgsql AS $$
DECLARE k mailbox.back;
BEGIN
  SELECT * INTO k FROM mailbox.back a WHERE a.qid = p_qid AND a.shard = p_shard ORDER BY a.version DESC LIMIT 1;
  RETURN k;
END $$;

-- keep_back writes what back_of returned, changed.
CREATE FUNCTION mailbox.keep_back(k mailbox.back) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE mailbox.back a SET version = nextval('mailbox.place'), orders = k.orders, lows = k.lows, highs = k.highs
    WHERE a.qid = k.qid AND a.shard = k.shard AND a.version = k.version;
  IF NOT FOUND THEN
    INSERT INTO mailbox.back VALUES (k.qid, k.shard, nextval('mailbox.place'), k.orders, k.lows, k.highs);
  END IF;
END $$;

-- include makes a value part of a range of an order: of the open one, or of one of the values that differ from it in the bits of p_around only, so that few of many messages that come back together write the row.
-- Of more than 16 ranges of an order those that are next to each other become one.
CREATE FUNCTION mailbox.include(p_qid int, p_shard int, p_order int, p_value bigint, p_around bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k mailbox.back := mailbox.back_of(p_qid, p_shard); v_low bigint := p_value; v_high bigint := 9223372036854775807;
BEGIN
  IF EXISTS (SELECT FROM unnest(k.orders, k.lows, k.highs) AS u(o, low, high) WHERE u.o = p_order AND p_value BETWEEN u.low AND u.high) THEN
    RETURN;
  END IF;
  IF p_order = ANY (k.orders) THEN
    v_low := p_value & ~p_around;
    v_high := p_value | p_around;
  END IF;
  WITH ranges AS (SELECT * FROM unnest(k.orders || p_order, k.lows || v_low, k.highs || v_high) AS u(o, low, high)),
    gaps AS (SELECT r.*, r.low - max(r.high) OVER (PARTITION BY r.o ORDER BY r.low, r.high ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS gap FROM ranges r),
    least_gaps AS (SELECT g.o, CASE WHEN count(*) > 16 THEN greatest(min(g.gap), 1) ELSE 1 END AS gap FROM gaps g GROUP BY g.o),
    runs AS (SELECT g.*, count(*) FILTER (WHERE g.gap > s.gap) OVER (PARTITION BY g.o ORDER BY g.low, g.high) AS run FROM gaps g JOIN least_gaps s USING (o)),
    joined AS (SELECT r.o, min(r.low) AS low, max(r.high) AS high FROM runs r GROUP BY r.o, r.run)
    SELECT array_agg(j.o ORDER BY j.o, j.low), array_agg(j.low ORDER BY j.o, j.low), array_agg(j.high ORDER BY j.o, j.low) INTO k.orders, k.lows, k.highs FROM joined j;
  k.qid := p_qid;
  k.shard := p_shard;
  PERFORM mailbox.keep_back(k);
END $$;

-- came_back notes where a message is, if its state is one of those that are looked for in ranges.
CREATE FUNCTION mailbox.came_back(q mailbox.queue, p_shard int, p_state "char", p_priority int, p_place bigint, p_born bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_state IN ('b', 'h') THEN
    PERFORM mailbox.include(q.qid, p_shard, CASE WHEN p_state = 'h' THEN p_priority ELSE 0 END, p_place, 15);
  END IF;
  IF p_state IN ('b', 'h', 's') AND (q.ready_age > 0 OR q.ready_count > 0) THEN
    PERFORM mailbox.include(q.qid, p_shard, CASE WHEN p_state = 'h' THEN 11 ELSE 10 END, p_born, (1 << 20) - 1);
  END IF;
END $$;

-- pass_back notes that no message is left up to p_upto[order + 1], if that saves a look at more than a few places. p_took says in which orders some were taken: no other
-- entries are left behind than theirs, except those of messages that were removed or moved.
CREATE FUNCTION mailbox.pass_back(p_qid int, p_shard int, p_upto bigint[], p_took bool[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k mailbox.back := mailbox.back_of(p_qid, p_shard);
BEGIN
  IF now() < mailbox.migrated_back() OR NOT EXISTS (SELECT FROM unnest(k.orders, k.lows, k.highs) AS u(o, low, high)
      WHERE p_upto[u.o + 1] >= least(u.high, u.low + CASE WHEN u.o >= 10 THEN 1 << 20 WHEN p_took[u.o + 1] THEN 15 ELSE 1000 END)) THEN
    RETURN;
  END IF;
  SELECT array_agg(u.o ORDER BY u.o, u.low), array_agg(greatest(u.low, p_upto[u.o + 1] + 1) ORDER BY u.o, u.low), array_agg(u.high ORDER BY u.o, u.low) INTO k.orders, k.lows, k.highs
    FROM unnest(k.orders, k.lows, k.highs) AS u(o, low, high) WHERE coalesce(u.high > p_upto[u.o + 1], true);
  PERFORM mailbox.keep_back(k);
END $$;

-- oldest_back returns the first message of an order of births, and keeps where it begins.
CREATE FUNCTION mailbox.oldest_back(p_qid int, p_shard int, p_order int) RETURNS mailbox.message LANGUAGE plpgsql AS $$
DECLARE k mailbox.back := mailbox.back_of(p_qid, p_shard); m mailbox.message; v_upto bigint[];
BEGIN
  IF p_order = 10 THEN
    SELECT b.* INTO m FROM unnest(k.orders, k.lows, k.highs) AS u(o, low, high) CROSS JOIN LATERAL (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard
      AND a.state IN ('b', 's') AND a.born BETWEEN u.low AND u.high ORDER BY a.born, a.arrived LIMIT 1) b WHERE u.o = 10 ORDER BY b.born, b.arrived LIMIT 1;
  ELSE
    SELECT b.* INTO m FROM unnest(k.orders, k.lows, k.highs) AS u(o, low, high) CROSS JOIN LATERAL (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard
      AND a.state = 'h' AND a.born > 0 AND a.born BETWEEN u.low AND u.high ORDER BY a.born, a.arrived LIMIT 1) b WHERE u.o = 11 ORDER BY b.born, b.arrived LIMIT 1;
  END IF;
  IF p_order = ANY (k.orders) THEN
    v_upto[p_order + 1] := coalesce(m.born - 1, mailbox.clock());
    PERFORM mailbox.pass_back(p_qid, p_shard, v_upto, NULL);
  END IF;
  RETURN m;
END $$;

-- tallied returns what is in a shard without a look at the inbox: what transactions of callers have acked is counted until it is collected.
CREATE FUNCTION mailbox.tallied(q mailbox.queue, p_shard int,
  OUT ready bigint, OUT delayed bigint, OUT in_flight bigint, OUT dead bigint, OUT bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF q.counted THEN
    SELECT coalesce(sum(t.ready), 0), coalesce(sum(t.delayed), 0), coalesce(sum(t.in_flight), 0), coalesce(sum(t.dead), 0), coalesce(sum(t.bytes), 0)
      INTO ready, delayed, in_flight, dead, bytes FROM generate_series(0, 31) s CROSS JOIN LATERAL (SELECT * FROM mailbox.tally a
        WHERE a.qid = q.qid AND a.shard = p_shard AND a.slot = s ORDER BY a.version DESC LIMIT 1) t;
  ELSE
    SELECT coalesce(sum(c.ready), 0), coalesce(sum(c.delayed), 0), coalesce(sum(c.in_flight), 0), coalesce(sum(c.dead), 0), coalesce(sum(c.bytes), 0)
      INTO ready, delayed, in_flight, dead, bytes FROM mailbox.count_rows(q.qid, p_shard, q.leveled) c;
  END IF;
END $$;

-- used_within returns how many messages of a shard are not dead, and their bytes; no fewer than there are if p_messages and p_bytes more fit, and else exactly. So only queues that are
-- almost full look into the inbox, which decays while a transaction is held open.
CREATE FUNCTION mailbox.used_within(q mailbox.queue, p_shard int, p_messages bigint, p_bytes bigint, OUT messages bigint, OUT bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
  messages := 0;
  bytes := 0;
  IF q.max_messages > 0 OR q.max_bytes > 0 THEN
    SELECT t.ready + t.delayed + t.in_flight, t.bytes INTO messages, bytes FROM mailbox.tallied(q, p_shard) t;
    IF q.counted AND NOT ((q.max_messages = 0 OR messages + p_messages <= q.max_messages) AND (q.max_bytes = 0 OR bytes + p_bytes <= q.max_bytes)) THEN
      SELECT u.messages, u.bytes INTO messages, bytes FROM mailbox.used(q, p_shard) u;
    END IF;
  END IF;
END $$;

-- free_leases returns how many more messages of a shard may be in flight; of p_want or more, there may be more.
CREATE FUNCTION mailbox.free_leases(q mailbox.queue, p_shard int, p_want bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_free bigint := 1000000000;
BEGIN
  IF q.max_in_flight > 0 THEN
    SELECT q.max_in_flight - t.in_flight INTO v_free FROM mailbox.tallied(q, p_shard) t;
    IF v_free < p_want AND q.counted THEN
      SELECT q.max_in_flight - c.in_flight INTO v_free FROM mailbox.counts(q, p_shard) c;
    END IF;
  END IF;
  RETURN v_free;
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
    RETURNING o.state AS old, a.state AS new, a.priority, a.born INTO c;
  PERFORM mailbox.came_back(q, m.shard, c.new, c.priority, p_place, c.born);
  PERFORM mailbox.moved(q, m.shard, c.old, c.new, m.size);
  IF m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(q, m.shard, m.grp, -(c.old = 'f')::int, false, p_place);
  END IF;
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
    RETURNING o.state AS old, a.state AS new, a.priority INTO c;
  PERFORM mailbox.came_back(t, v_shard, c.new, c.priority, v_place, p_at);
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
      PERFORM mailbox.came_back(q, m.shard, mailbox.ready_state(v_grp, m.priority), m.priority, v_place, t);
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

-- edit changes a message that waits: it is removed, gets another priority, or waits until p_due; 0 is now. It keeps its place, and its age
-- and its life count from its due time. was is the state that it was in: r ready, d delayed; f in flight and x dead, and nothing
-- was done; n if the message is not known; null if the call has to be made again.
CREATE OR REPLACE FUNCTION mailbox.edit(p_qid int, p_id uuid, p_remove bool, p_due bigint, p_wide bool, p_priority int DEFAULT NULL,
  OUT was text, OUT version bigint, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); f record; m mailbox.message; t bigint; v_due bigint;
BEGIN
  PERFORM mailbox.durable();
  version := q.version;
  f := mailbox.find(p_qid, p_id);
  IF f.seq IS NULL THEN
    was := 'n';
    RETURN;
  END IF;
  t := mailbox.begin_call(p_qid, ARRAY[f.shard], p_wide, 0);
  IF t IS NOT NULL THEN
    q := mailbox.rules(p_qid, f.shard);
    SELECT * INTO m FROM mailbox.message a WHERE a.seq = f.seq AND a.qid = p_qid;
    was := CASE WHEN m.seq IS NULL THEN 'n' WHEN m.state IN ('b', 's', 'p', 'h') THEN 'r' WHEN m.state = 'w' THEN 'd' ELSE m.state::text END;
    v_due := greatest(p_due, t);
    IF was IN ('r', 'd') AND p_remove THEN
      PERFORM mailbox.remove(q, m);
    ELSIF was IN ('r', 'd') AND p_priority IS NOT NULL THEN
      UPDATE mailbox.message a SET priority = nullif(p_priority, 0), state = CASE WHEN was = 'r' THEN mailbox.ready_state(q, p_priority) ELSE a.state END WHERE a.seq = m.seq;
      IF was = 'r' THEN
        PERFORM mailbox.came_back(q, m.shard, mailbox.ready_state(q, p_priority), p_priority, m.place, m.born);
      END IF;
      IF p_priority > 0 AND NOT q.leveled THEN
        PERFORM mailbox.follow_levels(p_qid);
      END IF;
    ELSIF was = 'd' OR (was = 'r' AND v_due > t) THEN
      UPDATE mailbox.message a SET born = v_due, aged = NULL, ends = v_due + a.ttl WHERE a.seq = m.seq;
      PERFORM mailbox.put(q, m, m.place, v_due, t);
      PERFORM mailbox.expire_by_count(q, m.shard, t);
    END IF;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- choose picks up to p_max ready messages, in order, with at most p_bytes of bodies, of which the first may be
-- larger. Messages that were delivered too often, or whose life is over, end instead. why is 1 if only the in-flight limit was in the way.
CREATE OR REPLACE FUNCTION mailbox.choose(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
  INOUT p_low bigint, OUT seqs bigint[], OUT why int) LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_size bigint := 0; v_got int := 0; v_again bool := true;
  k mailbox.back; v_took bool := false; v_last bigint;
BEGIN
  seqs := '{}';
  why := 0;
  <<looking>>
  WHILE v_again LOOP
    v_again := false;
    k := mailbox.back_of(q.qid, p_shard);
    FOR m IN SELECT * FROM (
      (SELECT b.* FROM unnest(k.orders, k.lows, k.highs) AS u(o, low, high) CROSS JOIN LATERAL (SELECT * FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard
        AND a.state IN ('b', 's') AND a.place BETWEEN u.low AND u.high AND a.seq <> ALL (seqs) ORDER BY a.place LIMIT p_max) b WHERE u.o = 0)
      UNION ALL
      (SELECT * FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'r' AND a.place > p_low ORDER BY a.place LIMIT p_max)) z
      ORDER BY z.place LIMIT p_max - v_got LOOP
      IF mailbox.exhausted(q, m) THEN
        PERFORM mailbox.exhaust(q, m, 0, t);
        v_again := true;
      ELSIF m.ends <= t THEN
        PERFORM mailbox.end_life(q, m, m.place, t);
        v_again := true;
      ELSIF v_got >= p_ceiling THEN
        why := (v_got = 0)::int;
        EXIT looking;
      ELSIF v_got > 0 AND p_bytes > 0 AND v_size + m.size > p_bytes THEN
        EXIT looking;
      ELSE
        v_got := v_got + 1;
        v_size := v_size + m.size;
        seqs := seqs || m.seq;
        p_low := CASE WHEN m.state = 'r' THEN m.place ELSE p_low END;
      END IF;
      v_last := m.place;
      v_took := v_took OR m.state <> 'r';
    END LOOP;
    v_again := v_again AND v_got < p_max; -- others take the places of those that ended
  END LOOP;
  IF v_last IS NULL AND why = 0 AND p_max > 0 AND k.qid IS NOT NULL THEN -- there are none
    v_last := nextval('mailbox.place');
  END IF;
  IF v_took OR k.orders[2] = 0 OR v_last > k.lows[1] + 1000 THEN
    PERFORM mailbox.pass_back(q.qid, p_shard, ARRAY[v_last], ARRAY[v_took]);
  END IF;
END $$;

-- choose_levels is choose for a queue with priorities. Each has an order by place, and of the first of each the one with the highest level goes next, and
-- of several the one with the lowest place. A message is behind all before it in its order, so its turn is the latest of theirs and its own. No
-- more than v_look of an order are read at a time; if all of them are taken, the next are read.
CREATE OR REPLACE FUNCTION mailbox.choose_levels(q mailbox.queue, p_shard int, p_max int, p_bytes bigint, p_ceiling bigint, t bigint,
  INOUT p_low bigint, INOUT p_levels bigint[], OUT seqs bigint[], OUT why int) LANGUAGE plpgsql AS $$
DECLARE c record; m mailbox.message; v_look int := least(p_max, 8); v_size bigint := 0; v_got int := 0; v_again bool := true;
  k mailbox.back; v_took bool[] := array_fill(false, ARRAY[10]); v_last bigint[] := array_fill(NULL::bigint, ARRAY[10]);
BEGIN
  seqs := '{}';
  why := 0;
  p_levels := coalesce(p_levels, array_fill(0::bigint, ARRAY[9]));
  <<looking>>
  WHILE v_again AND v_got < p_max LOOP
    v_again := false;
    k := mailbox.back_of(q.qid, p_shard);
    FOR c IN SELECT * FROM (
      SELECT h.message, h.priority, h.place, row_number() OVER orders AS n, max(((9 - mailbox.level(q, h.message, t)) << 56) + h.place) OVER orders AS turn FROM (
        SELECT u.o AS priority, z.place, z.message FROM unnest(k.orders, k.lows, k.highs) AS u(o, low, high) CROSS JOIN LATERAL (
          (SELECT a.place, a AS message FROM mailbox.message a WHERE u.o = 0 AND a.qid = q.qid AND a.shard = p_shard AND a.state IN ('b', 's')
            AND a.place BETWEEN u.low AND u.high AND a.seq <> ALL (seqs) ORDER BY a.place LIMIT v_look)
          UNION ALL
          (SELECT a.place, a FROM mailbox.message a WHERE u.o > 0 AND a.qid = q.qid AND a.shard = p_shard AND a.state = 'h' AND a.priority = u.o
            AND a.place BETWEEN u.low AND u.high AND a.seq <> ALL (seqs) ORDER BY a.place LIMIT v_look)) z
        UNION ALL
        (SELECT 0, a.place, a FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'r' AND a.place > p_low ORDER BY a.place LIMIT v_look)
        UNION ALL
        SELECT l, z.place, z.message FROM generate_series(1, 9) l CROSS JOIN LATERAL (
          (SELECT a.place, a AS message FROM mailbox.message a WHERE a.qid = q.qid AND a.shard = p_shard AND a.state = 'p' AND a.priority = l
            AND a.place > p_levels[l] ORDER BY a.place LIMIT v_look)) z) h
      WINDOW orders AS (PARTITION BY h.priority ORDER BY h.place)) y WHERE y.n <= v_look ORDER BY y.turn, y.place LIMIT p_max - v_got LOOP
      m := c.message;
      IF mailbox.exhausted(q, m) OR m.ends <= t THEN
        IF mailbox.exhausted(q, m) THEN
          PERFORM mailbox.exhaust(q, m, 0, t);
        ELSE
          PERFORM mailbox.end_life(q, m, m.place, t);
        END IF;
        v_again := true; -- another takes its place
      ELSIF v_got >= p_ceiling THEN
        why := (v_got = 0)::int;
        EXIT looking;
      ELSIF v_got > 0 AND p_bytes > 0 AND v_size + m.size > p_bytes THEN
        EXIT looking;
      ELSE
        v_got := v_got + 1;
        v_size := v_size + m.size;
        seqs := seqs || m.seq;
        IF m.state = 'r' THEN
          p_low := m.place;
        ELSIF m.state = 'p' THEN
          p_levels[m.priority] := m.place;
        END IF;
      END IF;
      v_last[c.priority + 1] := m.place;
      v_took[c.priority + 1] := v_took[c.priority + 1] OR m.state NOT IN ('r', 'p');
      IF c.n = v_look THEN
        v_again := true;
        EXIT;
      END IF;
    END LOOP;
  END LOOP;
  IF seqs = '{}' AND why = 0 AND p_max > 0 THEN -- there are none
    v_last := array_fill(nextval('mailbox.place'), ARRAY[10]);
  END IF;
  PERFORM mailbox.pass_back(q.qid, p_shard, v_last, v_took);
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
  DELETE FROM mailbox.back k WHERE k.qid = v_qid;
  DELETE FROM mailbox.group_limit l WHERE l.qid = v_qid;
  DELETE FROM mailbox.dedup d WHERE d.qid = v_qid;
  DELETE FROM mailbox.schedule s WHERE s.qid = v_qid;
  DELETE FROM mailbox.tally a WHERE a.qid = v_qid;
  RETURN true;
END $$;

-- oldest_ready returns the ready message that could be delivered first, or a row of nulls. p_leveled says that there may be some with priorities.
CREATE OR REPLACE FUNCTION mailbox.oldest_ready(p_qid int, p_shard int, p_leveled bool DEFAULT false) RETURNS mailbox.message LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; l mailbox.message; v_begin text := current_setting('mailboxmq.low', true); v_low bigint := 0; v_levels bigint[];
BEGIN
  IF split_part(v_begin, ' ', 1) = p_qid::text THEN
    v_low := split_part(v_begin, ' ', 2)::bigint;
    v_levels := string_to_array(nullif(split_part(v_begin, ' ', 3), ''), ',')::bigint[];
  END IF;
  m := mailbox.oldest_back(p_qid, p_shard, 10);
  SELECT * INTO l FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'r' AND a.place > v_low ORDER BY a.place LIMIT 1;
  IF l.seq IS NOT NULL AND (m.seq IS NULL OR (l.born, l.arrived) < (m.born, m.arrived)) THEN
    m := l;
  END IF;
  IF p_leveled THEN
    l := mailbox.oldest_back(p_qid, p_shard, 11);
    IF l.seq IS NOT NULL AND (m.seq IS NULL OR (l.born, l.arrived) < (m.born, m.arrived)) THEN
      m := l;
    END IF;
    SELECT z.* INTO l FROM generate_series(1, 9) k CROSS JOIN LATERAL (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard
      AND a.state = 'p' AND a.priority = k AND a.place > coalesce(v_levels[k], 0) ORDER BY a.place LIMIT 1) z ORDER BY z.born, z.arrived LIMIT 1;
    IF l.seq IS NOT NULL AND (m.seq IS NULL OR (l.born, l.arrived) < (m.born, m.arrived)) THEN
      m := l;
    END IF;
  END IF;
  RETURN m;
END $$;
