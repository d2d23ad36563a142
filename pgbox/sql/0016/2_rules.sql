-- The rules that change with where messages can be, and how many there are.

-- configure creates a queue (p_version is 0) or changes its configuration, if that is still of this version. It
-- reports whether it did. p_rules are the numbers of the settings, in the order of the columns.
CREATE OR REPLACE FUNCTION mailbox.configure(p_name text, p_version bigint, p_incarnation text, p_config bytea, p_strict bool, p_drop bool,
  p_dead_to text, p_rules bigint[]) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue;
BEGIN
  PERFORM mailbox.durable();
  IF p_version = 0 THEN
    INSERT INTO mailbox.queue (name, incarnation, config, is_strict, drop_expired, dead_to, shards, max_deliveries, max_messages, max_bytes,
      max_in_flight, max_dead, max_hold, dedup_window, dedup_max, ready_age, ready_count, dead_age, dead_count, ttl, aging, counted)
      VALUES (p_name, p_incarnation, p_config, p_strict, p_drop, p_dead_to, p_rules[1], p_rules[2], p_rules[3], p_rules[4], p_rules[5], p_rules[6],
        p_rules[7], p_rules[8], p_rules[9], p_rules[10], p_rules[11], p_rules[12], p_rules[13], coalesce(p_rules[14], 0), coalesce(p_rules[15], 60000000),
        p_rules[3] > 0 OR p_rules[4] > 0 OR p_rules[5] > 0 OR p_rules[11] > 0)
      ON CONFLICT (name) DO NOTHING;
    RETURN FOUND;
  END IF;
  PERFORM mailbox.lock_queue(p_name);
  SELECT * INTO q FROM mailbox.queue a WHERE a.name = p_name AND a.version = p_version AND a.incarnation = p_incarnation;
  IF q.ready_age = 0 AND q.ready_count = 0 AND (p_rules[10] > 0 OR p_rules[11] > 0) THEN -- births were not noted before
    PERFORM mailbox.include(q.qid, s, o, 0, 9223372036854775807) FROM generate_series(0, q.shards - 1) s CROSS JOIN generate_series(10, 11) o;
  END IF;
  UPDATE mailbox.queue a SET version = a.version + 1, config = p_config, drop_expired = p_drop, dead_to = p_dead_to, max_deliveries = p_rules[2],
    max_messages = p_rules[3], max_bytes = p_rules[4], max_in_flight = p_rules[5], max_dead = p_rules[6], max_hold = p_rules[7],
    dedup_window = p_rules[8], dedup_max = p_rules[9], ready_age = p_rules[10], ready_count = p_rules[11], dead_age = p_rules[12],
    dead_count = p_rules[13], ttl = coalesce(p_rules[14], 0), aging = coalesce(p_rules[15], a.aging)
    WHERE a.name = p_name AND a.version = p_version AND a.incarnation = p_incarnation;
  RETURN FOUND;
END $$;

-- counts returns what is in a shard. What transactions of callers have acked is subtracted here until it is collected.
CREATE OR REPLACE FUNCTION mailbox.counts(q mailbox.queue, p_shard int,
  OUT ready bigint, OUT delayed bigint, OUT in_flight bigint, OUT dead bigint, OUT bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
  SELECT t.ready, t.delayed, t.in_flight, t.dead, t.bytes INTO ready, delayed, in_flight, dead, bytes FROM mailbox.tallied(q, p_shard) t;
  IF q.counted THEN
    SELECT in_flight - count(*), bytes - coalesce(sum(a.size), 0) INTO in_flight, bytes FROM mailbox.inbox a
      WHERE a.qid = q.qid AND a.shard = p_shard AND a.kind IN ('c', 'g') AND a.size IS NOT NULL;
  END IF;
END $$;

-- expire_by_count ends the oldest ready messages of a queue that keeps no more than a number of them.
CREATE OR REPLACE FUNCTION mailbox.expire_by_count(q mailbox.queue, p_shard int, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_over bigint;
BEGIN
  IF q.ready_count = 0 THEN
    RETURN;
  END IF;
  SELECT c.ready - q.ready_count INTO v_over FROM mailbox.tallied(q, p_shard) c;
  WHILE v_over > 0 LOOP
    m := mailbox.oldest_ready(q.qid, p_shard, q.leveled);
    EXIT WHEN m.seq IS NULL OR NOT (q.drop_expired OR NOT mailbox.dead_full(q, m, 'expired'));
    PERFORM mailbox.expire(q, m, p_at);
    v_over := v_over - 1;
  END LOOP;
END $$;

-- room says whether a message of a size fits.
CREATE OR REPLACE FUNCTION mailbox.room(q mailbox.queue, p_shard int, p_size bigint) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE u record;
BEGIN
  u := mailbox.used_within(q, p_shard, 1, p_size);
  RETURN mailbox.fits(q, u.messages, u.bytes, p_size);
END $$;

-- may_lease says whether the queue may have one more message in flight.
CREATE OR REPLACE FUNCTION mailbox.may_lease(q mailbox.queue, p_shard int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  RETURN mailbox.free_leases(q, p_shard, 1) > 0;
END $$;

-- send_each adds messages one by one, for queues with rules and messages with keys.
CREATE OR REPLACE FUNCTION mailbox.send_each(q mailbox.queue, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, t bigint, p_ttls bigint[] DEFAULT NULL, p_priorities int[] DEFAULT NULL,
  p_uniques bytea[] DEFAULT NULL, p_replaces bool[] DEFAULT NULL, p_count_held bool DEFAULT false,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint, OUT held bigint) LANGUAGE plpgsql AS $$
DECLARE r mailbox.queue; k record; v_code text; v_seq bigint; v_grp bytea; v_shard int; v_due bigint; v_ttl bigint;
  u record; v_messages bigint[]; v_bytes bigint[]; n int; v_ready int[]; v_delayed int[]; v_size bigint[]; h mailbox.message; v_grows int;
  v_total bigint := (SELECT sum(length(b)) FROM unnest(p_bodies) b);
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
      u := mailbox.used_within(r, v_shard, cardinality(p_ids), v_total);
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
        PERFORM mailbox.came_back(q, v_shard, 's', NULL, v_seq, v_due);
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

-- collect_one moves a row of the inbox into the queue. Bounds may be exceeded; a message whose dedup key was used, or whose unique key is held, is
-- dropped, or replaces the one that holds it, and is told of.
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
        DELETE FROM mailbox.body a WHERE a.seq = r.seq;
        PERFORM mailbox.tell_duplicate(q, r.id, CASE k.code WHEN 'd' THEN 'dedup' ELSE 'conflict' END, k.id);
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
        PERFORM mailbox.tell_duplicate(q, r.id, 'replaced', h.id);
      ELSE
        PERFORM mailbox.tell_duplicate(q, r.id, 'unique', h.id);
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
      PERFORM mailbox.came_back(q, r.shard, 's', NULL, v_place, v_due);
    END IF;
    PERFORM mailbox.moved(q, r.shard, NULL, CASE WHEN v_due > t THEN 'd' ELSE 'r' END::"char", r.size);
    PERFORM mailbox.expire_by_count(q, r.shard, t);
  END IF;
END $$;

-- receive leases ready messages to requests, in order; see migration 9 for its rows.
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
  v_ceiling := mailbox.free_leases(q, p_shard, (SELECT sum(n) FROM unnest(p_max) n));
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

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND (p.proname IN ('edit', 'delete_queue') OR (p.proname IN ('redrive', 'receive') AND p.pronargs > 5)) LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
