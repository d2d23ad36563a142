-- begin_at notes for the rest of the call that no sent message of a queue is left up to a place.
CREATE FUNCTION mailbox.begin_at(p_qid int, p_place bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('mailboxmq.low', p_qid || ' ' || p_place, true);
END $$;

-- oldest_ready returns the ready message that could be delivered first, or a row of nulls.
CREATE OR REPLACE FUNCTION mailbox.oldest_ready(p_qid int, p_shard int) RETURNS mailbox.message LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_begin text := current_setting('mailboxmq.low', true); v_low bigint := 0;
BEGIN
  IF split_part(v_begin, ' ', 1) = p_qid::text THEN
    v_low := split_part(v_begin, ' ', 2)::bigint;
  END IF;
  SELECT * INTO m FROM (
    (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state = 'r' AND a.place > v_low ORDER BY a.place LIMIT 1)
    UNION ALL
    (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = p_shard AND a.state IN ('b', 's') ORDER BY a.born, a.arrived LIMIT 1)) z
    ORDER BY z.born, z.arrived LIMIT 1;
  RETURN m;
END $$;

-- send adds messages, in order. Of messages that are not sent, codes says why: d duplicate and c conflict, with
-- the id of the first message; f the queue is full; w there are too many dedup keys, with the microseconds until
-- one is free. An empty code means that all are sent, and null that the call has to be made again. p_past has
-- four values for each message, which it brought from other queues. keys is the number of dedup keys, if p_count. p_low and
-- p_low_due are a place and a time up to which the caller knows that nothing is left, as in receive; at, if it is not null, is another such time.
CREATE FUNCTION mailbox.send_from(p_qid int, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, p_wide bool, p_low bigint, p_low_due bigint,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint, OUT version bigint, OUT woken text, OUT endings text, OUT at bigint)
LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; t bigint; v_ruled bool;
BEGIN
  PERFORM mailbox.durable();
  q := mailbox.rules(p_qid, 0);
  v_ruled := q.is_strict OR q.max_messages > 0 OR q.max_bytes > 0 OR q.ready_age > 0 OR q.ready_count > 0;
  IF v_ruled THEN
    PERFORM mailbox.begin_at(p_qid, p_low);
    t := mailbox.begin_call(p_qid, p_shards, p_wide, p_low_due);
    at := t;
    IF t IS NULL THEN
      woken := current_setting('mailboxmq.woken', true);
      endings := mailbox.endings();
      RETURN;
    END IF;
  ELSIF 0 <> ANY (p_delays) THEN
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
  codes := '';
  IF v_ruled OR q.counted OR p_keys IS NOT NULL OR p_past IS NOT NULL THEN
    SELECT s.codes, s.ids, s.waits, s.keys INTO codes, ids, waits, keys
      FROM mailbox.send_each(q, p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays, p_keys, p_digests, p_past, p_count, t) s;
  ELSE
    WITH n AS MATERIALIZED (SELECT nextval('mailbox.place') AS seq, u.* FROM unnest(p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays) AS u(shard, id, body, grp, extra, delay)),
    b AS (INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) SELECT n.seq, t, n.grp, n.extra, n.body FROM n)
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id)
      SELECT n.seq, p_qid, n.shard, CASE WHEN d.due > t THEN 'd' ELSE 'r' END::"char", n.seq, n.seq, d.due, d.due, length(n.body), n.id
      FROM n CROSS JOIN LATERAL (SELECT mailbox.due_at(t, n.delay) AS due) d;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- send is send_from for processes of the version before.
CREATE OR REPLACE FUNCTION mailbox.send(p_qid int, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, p_wide bool,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint, OUT version bigint, OUT woken text, OUT endings text)
LANGUAGE sql AS $$
  SELECT s.codes, s.ids, s.waits, s.keys, s.version, s.woken, s.endings
    FROM mailbox.send_from(p_qid, p_shards, p_ids, p_bodies, p_groups, p_extras, p_delays, p_keys, p_digests, p_past, p_count, p_wide, 0, 0) s $$;

-- ack removes leased messages of a queue without strict groups. It takes no lock but those of the rows: the row
-- decides between an ack and the end of its lease. It returns the positions of the receipts that were valid.
CREATE OR REPLACE FUNCTION mailbox.ack(p_qid int, p_shards int[], p_seqs bigint[], p_nonces bigint[], p_ids uuid[]) RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE t bigint; v_counted bool;
BEGIN
  PERFORM mailbox.durable();
  PERFORM pg_advisory_xact_lock_shared(mailbox.lock_key(3, p_qid, 0)); -- see start_counting
  t := mailbox.clock();
  SELECT a.counted INTO v_counted FROM mailbox.queue a WHERE a.qid = p_qid;
  RETURN QUERY WITH held AS MATERIALIZED (
      SELECT a.seq, u.n, u.shard, a.size FROM (SELECT * FROM unnest(p_shards, p_seqs, p_nonces, p_ids) WITH ORDINALITY AS v(shard, seq, nonce, id, n) ORDER BY v.seq) u
      CROSS JOIN LATERAL (SELECT b.seq, b.size FROM mailbox.message b WHERE b.seq = u.seq AND b.qid = p_qid AND b.shard = u.shard AND b.state = 'f'
        AND b.nonce = u.nonce AND b.id = u.id AND b.due > t FOR UPDATE) a),
    gone AS (DELETE FROM mailbox.message a WHERE a.seq = ANY (ARRAY(SELECT h.seq FROM held h))),
    bodies AS (DELETE FROM mailbox.body b WHERE b.seq = ANY (ARRAY(SELECT h.seq FROM held h))),
    added AS MATERIALIZED (SELECT mailbox.add(p_qid, h.shard, 0, 0, -count(*), 0, -sum(h.size))
      FROM (SELECT DISTINCT d.seq, d.shard, d.size FROM held d) h WHERE v_counted GROUP BY h.shard)
    SELECT min(h.n)::int FROM held h WHERE (SELECT count(*) FROM added) >= 0 GROUP BY h.seq;
END $$;

-- put makes a message wait at a place until it is due.
CREATE OR REPLACE FUNCTION mailbox.put(q mailbox.queue, m mailbox.message, p_place bigint, p_due bigint, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
  UPDATE mailbox.message a SET place = p_place, due = p_due, error = m.error,
    state = CASE WHEN p_due <= p_at THEN CASE WHEN q.is_strict THEN 's' ELSE 'b' END
      WHEN q.is_strict AND a.deliveries + a.releases > 0 THEN 'w' ELSE 'd' END
    FROM (SELECT b.seq, b.state FROM mailbox.message b WHERE b.seq = m.seq OFFSET 0) o WHERE a.seq = m.seq AND o.seq = a.seq
    RETURNING o.state AS old, a.state AS new INTO c;
  PERFORM mailbox.moved(q, m.shard, c.old, c.new, m.size);
  IF q.is_strict THEN
    PERFORM mailbox.regroup(m.qid, m.shard, m.grp);
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
    PERFORM mailbox.regroup(m.qid, m.shard, m.grp);
  END IF;
END $$;

-- arrive makes a message of one queue ready at the tail of another. Its age begins again.
CREATE OR REPLACE FUNCTION mailbox.arrive(q mailbox.queue, t mailbox.queue, m mailbox.message, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_shard int := mailbox.arrival_shard(t, m); v_place bigint := nextval('mailbox.place'); v_grp bytea; c record;
BEGIN
  IF t.is_strict THEN
    SELECT coalesce(b.grp, '') INTO v_grp FROM mailbox.body b WHERE b.seq = m.seq;
  END IF;
  UPDATE mailbox.message a SET qid = t.qid, shard = v_shard, state = CASE WHEN t.is_strict THEN 's' ELSE 'b' END,
    place = v_place, arrived = v_place, born = p_at, due = p_at, hold = 0, nonce = 0, deliveries = 0, releases = 0, grp = v_grp, error = m.error,
    error_type = NULL, reason = NULL, dead_at = NULL, from_reason = m.from_reason, from_queue = m.from_queue,
    from_deliveries = m.from_deliveries, from_error = m.from_error
    FROM (SELECT b.seq, b.state FROM mailbox.message b WHERE b.seq = m.seq OFFSET 0) o WHERE a.seq = m.seq AND o.seq = a.seq
    RETURNING o.state AS old, a.state AS new INTO c;
  PERFORM mailbox.moved(q, m.shard, c.old, NULL, m.size);
  PERFORM mailbox.moved(t, v_shard, NULL, c.new, m.size);
  IF q.is_strict AND m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(q.qid, m.shard, m.grp);
  END IF;
  IF t.is_strict THEN
    PERFORM mailbox.regroup(t.qid, v_shard, v_grp);
  END IF;
  PERFORM mailbox.expire_by_count(mailbox.rules(t.qid, v_shard), v_shard, p_at);
  PERFORM set_config('mailboxmq.woken', coalesce(current_setting('mailboxmq.woken', true), '') || t.qid || ' ', true);
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
    PERFORM mailbox.arrive(q, t, m, p_at);
    RETURN;
  END IF;
  UPDATE mailbox.message a SET state = 'x', place = nextval('mailbox.place'), born = p_at, dead_at = p_at, due = 0,
    reason = p_reason, error = m.error, error_type = m.error_type, grp = NULL
    FROM (SELECT b.seq, b.state FROM mailbox.message b WHERE b.seq = m.seq OFFSET 0) o WHERE a.seq = m.seq AND o.seq = a.seq
    RETURNING o.state INTO v_state;
  PERFORM mailbox.moved(q, m.shard, v_state, 'x', m.size);
  IF m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(m.qid, m.shard, m.grp);
  END IF;
  PERFORM mailbox.trim_dead(q, m.shard);
END $$;

-- send_each adds messages one by one, for queues with rules and messages with dedup keys.
CREATE OR REPLACE FUNCTION mailbox.send_each(q mailbox.queue, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, t bigint,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint) LANGUAGE plpgsql AS $$
DECLARE r mailbox.queue; k record; v_code text; v_seq bigint; v_grp bytea; v_shard int; v_due bigint;
  u record; v_messages bigint[]; v_bytes bigint[]; n int; v_ready int[]; v_delayed int[]; v_size bigint[];
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
    n := v_shard + 1;
    IF v_code = '' AND v_messages[n] IS NULL THEN -- counted once for each call
      u := mailbox.used(r, v_shard);
      v_messages[n] := u.messages;
      v_bytes[n] := u.bytes;
    END IF;
    IF v_code = '' AND NOT mailbox.fits(r, v_messages[n], v_bytes[n], length(p_bodies[i])) THEN
      v_code := 'f';
    ELSIF v_code = '' AND p_keys[i] IS NOT NULL AND keys >= q.dedup_max THEN
      v_code := 'w';
      waits[i] := (SELECT greatest(min(a.ends) - t, 1) FROM mailbox.dedup a WHERE a.qid = q.qid AND a.ends > t);
    END IF;
    IF v_code = '' THEN
      v_code := 's';
      v_seq := nextval('mailbox.place');
      v_grp := CASE WHEN q.is_strict THEN coalesce(p_groups[i], '') END;
      v_due := mailbox.due_at(t, p_delays[i]);
      IF p_keys[i] IS NOT NULL THEN
        INSERT INTO mailbox.dedup AS d (qid, key, digest, id, ends) VALUES (q.qid, p_keys[i], p_digests[i], p_ids[i], t + q.dedup_window)
          ON CONFLICT (qid, key) DO UPDATE SET digest = excluded.digest, id = excluded.id, ends = excluded.ends;
        keys := keys + 1;
      END IF;
      INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) VALUES (v_seq, t, p_groups[i], p_extras[i], p_bodies[i]);
      INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error)
        VALUES (v_seq, q.qid, v_shard, CASE WHEN v_due > t THEN 'd' WHEN q.is_strict THEN 's' ELSE 'r' END, v_seq, v_seq, v_due, v_due,
          length(p_bodies[i]), p_ids[i], v_grp, p_past[4 * i - 3], p_past[4 * i - 2], p_past[4 * i - 1], p_past[4 * i]);
      IF q.is_strict THEN
        PERFORM mailbox.regroup(q.qid, v_shard, v_grp);
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

DROP FUNCTION mailbox.settle(int, text, int[], bigint[], bigint[], uuid[], bigint[], bytea[], bytea[], text[], bool);

-- settle settles deliveries, in order. what: a ack, l ack late, n nack (p_numbers: delays, p_reasons: n it failed, r
-- release, p put back), e extend and g extend late (p_numbers: visibilities), k dead-letter (p_reasons, p_types), u undo a
-- delivery that reached no receiver.
-- codes: s settled, x the receipt has expired, f the dead letters are full; null: the call has to be made again.
CREATE FUNCTION mailbox.settle(p_qid int, p_what text, p_shards int[], p_seqs bigint[], p_nonces bigint[], p_ids uuid[],
  p_numbers bigint[], p_causes bytea[], p_types bytea[], p_reasons text[], p_wide bool, p_low bigint DEFAULT 0, p_low_due bigint DEFAULT 0,
  OUT codes text, OUT grants bigint[], OUT version bigint, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; m mailbox.message; t bigint; v_held bool; v_same bool; v_code text; v_granted bigint;
BEGIN
  IF p_what = 'u' OR (p_what IN ('e', 'g') AND 0 < ALL (p_numbers)) THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSE
    PERFORM mailbox.durable();
  END IF;
  PERFORM mailbox.begin_at(p_qid, p_low);
  t := mailbox.begin_call(p_qid, p_shards, p_wide, p_low_due);
  IF t IS NOT NULL THEN
    codes := '';
    FOR i IN 1 .. cardinality(p_seqs) LOOP
      IF q.qid IS NULL OR q.shards > 1 THEN
        q := mailbox.rules(p_qid, p_shards[i]);
      END IF;
      SELECT * INTO m FROM mailbox.message a WHERE a.seq = p_seqs[i] AND a.qid = p_qid AND a.shard = p_shards[i] AND a.id = p_ids[i] FOR UPDATE;
      v_held := FOUND AND m.state = 'f' AND m.nonce = p_nonces[i] AND m.due > t;
      v_same := FOUND AND m.state <> 'x' AND m.deliveries + m.releases > 0 AND p_nonces[i] = mailbox.new_nonce(q, m.seq, m.place, p_nonces[i] >> 32);
      v_code := 'x';
      v_granted := 0;
      IF v_held THEN
        m.error := coalesce(nullif(p_causes[i], ''), m.error);
        SELECT s.code, s.granted INTO v_code, v_granted FROM mailbox.settle_held(q, m, CASE p_what WHEN 'n' THEN p_reasons[i] ELSE p_what END,
          p_numbers[i], p_types[i], p_reasons[i], t) s;
      ELSIF p_what = 'l' AND v_same THEN
        PERFORM mailbox.remove(q, m);
        v_code := 's';
      ELSIF p_what = 'g' AND v_same AND m.state = 'b' AND m.nonce = p_nonces[i] AND mailbox.may_lease(q, m.shard) THEN
        v_code := 's';
        IF p_numbers[i] > 0 THEN
          UPDATE mailbox.message a SET state = 'f', due = t + p_numbers[i], again = true,
            hold = CASE WHEN q.max_hold > 0 THEN t + greatest(q.max_hold, 10 * p_numbers[i]) ELSE 0 END WHERE a.seq = m.seq;
          PERFORM mailbox.moved(q, m.shard, m.state, 'f', m.size);
        END IF;
      END IF;
      codes := codes || v_code;
      grants[i] := v_granted;
    END LOOP;
    version := q.version;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- delete_all deletes messages with their bodies, and counts them.
CREATE OR REPLACE FUNCTION mailbox.delete_all(p_seqs bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_count bigint := 0; c record;
BEGIN
  FOR c IN WITH gone AS (DELETE FROM mailbox.message a WHERE a.seq = ANY (p_seqs) RETURNING a.qid, a.shard, a.state, a.size)
    SELECT g.qid, g.shard, count(*) FILTER (WHERE g.state IN ('r', 'b', 's')) AS ready, count(*) FILTER (WHERE g.state IN ('d', 'w')) AS delayed,
      count(*) FILTER (WHERE g.state = 'f') AS in_flight, count(*) FILTER (WHERE g.state = 'x') AS dead,
      coalesce(sum(g.size) FILTER (WHERE g.state <> 'x'), 0) AS bytes, count(*) AS messages FROM gone g GROUP BY g.qid, g.shard LOOP
    IF EXISTS (SELECT FROM mailbox.queue a WHERE a.qid = c.qid AND a.counted) THEN
      PERFORM mailbox.add(c.qid, c.shard, -c.ready, -c.delayed, -c.in_flight, -c.dead, -c.bytes);
    END IF;
    v_count := v_count + c.messages;
  END LOOP;
  DELETE FROM mailbox.body b WHERE b.seq = ANY (p_seqs);
  RETURN v_count;
END $$;

-- redrive makes dead letters ready again at the tail, oldest death first: those with these ids, or all that died
-- up to the place p_until. p_until is null in the first call. stopped is set if the queue is full.
CREATE OR REPLACE FUNCTION mailbox.redrive(p_qid int, p_ids uuid[], p_limit int, p_wide bool, INOUT p_until bigint,
  OUT moved int, OUT stopped bool, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); m mailbox.message; t bigint; v_place bigint; v_grp bytea;
BEGIN
  PERFORM mailbox.durable();
  stopped := false;
  t := mailbox.begin_call(p_qid, ARRAY(SELECT generate_series(0, q.shards - 1)), p_wide, 0);
  IF t IS NOT NULL THEN
    moved := 0;
    p_until := coalesce(p_until, nextval('mailbox.place'));
    FOR m IN SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.state = 'x' AND a.place <= p_until AND (p_ids IS NULL OR a.id = ANY (p_ids))
      ORDER BY a.place LIMIT p_limit LOOP
      q := mailbox.rules(p_qid, m.shard);
      -- Retention may just have removed it. As text, state does not match the condition of a partial index, which might be read to its end.
      CONTINUE WHEN NOT EXISTS (SELECT FROM mailbox.message a WHERE a.seq = m.seq AND a.state::text = 'x' AND a.place = m.place);
      IF NOT mailbox.room(q, m.shard, m.size) THEN
        stopped := true;
        EXIT;
      END IF;
      v_place := nextval('mailbox.place');
      v_grp := NULL;
      IF q.is_strict THEN
        SELECT coalesce(b.grp, '') INTO v_grp FROM mailbox.body b WHERE b.seq = m.seq;
      END IF;
      UPDATE mailbox.message a SET state = CASE WHEN q.is_strict THEN 's' ELSE 'b' END, place = v_place, arrived = v_place,
        born = t, due = t, deliveries = 0, releases = 0, redrives = a.redrives + 1, nonce = 0, hold = 0, reason = NULL, error_type = NULL, dead_at = NULL, grp = v_grp
        WHERE a.seq = m.seq;
      PERFORM mailbox.moved(q, m.shard, 'x', 'b', m.size);
      IF q.is_strict THEN
        PERFORM mailbox.regroup(p_qid, m.shard, v_grp);
      END IF;
      moved := moved + 1;
      PERFORM mailbox.expire_by_count(q, m.shard, t);
      PERFORM mailbox.retain(q, m.shard, t, true, t);
    END LOOP;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- used returns how many messages wait in a shard, and their bytes, if the queue bounds them.
CREATE OR REPLACE FUNCTION mailbox.used(q mailbox.queue, p_shard int, OUT messages bigint, OUT bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
  messages := 0;
  bytes := 0;
  IF q.max_messages > 0 OR q.max_bytes > 0 THEN
    SELECT c.ready + c.delayed + c.in_flight, c.bytes INTO messages, bytes FROM mailbox.counts(q, p_shard) c;
  END IF;
END $$;

-- expire_by_count expires the oldest ready messages beyond the retention by count.
CREATE OR REPLACE FUNCTION mailbox.expire_by_count(q mailbox.queue, p_shard int, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE m mailbox.message; v_over bigint;
BEGIN
  IF q.ready_count = 0 THEN
    RETURN;
  END IF;
  SELECT c.ready - q.ready_count INTO v_over FROM mailbox.counts(q, p_shard) c;
  WHILE v_over > 0 LOOP
    m := mailbox.oldest_ready(q.qid, p_shard);
    EXIT WHEN m.seq IS NULL OR NOT (q.drop_expired OR NOT mailbox.dead_full(q, m, 'expired'));
    PERFORM mailbox.expire(q, m, p_at);
    v_over := v_over - 1;
  END LOOP;
END $$;

-- may_lease reports whether the in-flight limit allows one more lease.
CREATE OR REPLACE FUNCTION mailbox.may_lease(q mailbox.queue, p_shard int) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  RETURN q.max_in_flight = 0 OR q.max_in_flight > (SELECT c.in_flight FROM mailbox.counts(q, p_shard) c);
END $$;

-- receive leases ready messages to requests, in order. The first row is about the call: request is -1, or -2 if
-- the call has to be made again; seq is the place up to which no sent message is left; nonce is the time;
-- if p_next, sent_at is when the shard or a queue whose dead letters come here changes next, and deliveries is the
-- number of such queues; first_at is the version of the queue; extra has a character
-- for each request, 1 if only the in-flight limit kept it from getting a message; error has the endings, and
-- body the queues that messages went to.
CREATE OR REPLACE FUNCTION mailbox.receive(p_qid int, p_shard int, p_max int[], p_bytes bigint[], p_vis bigint[], p_seed bigint,
  p_low bigint, p_low_due bigint, p_next bool, p_wide bool)
RETURNS TABLE (request int, seq bigint, nonce bigint, deliveries int, first_at bigint, sent_at bigint, id uuid, grp bytea, extra bytea,
  body bytea, error bytea, from_reason bytea, from_queue bytea, from_deliveries bytea, from_error bytea, released bool)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE q mailbox.queue; t bigint; v_seqs bigint[]; v_groups bytea[]; v_why int; v_ceiling bigint; v_whys text := ''; v_seed bigint := p_seed;
  v_low bigint := p_low; v_zero bool := false; v_empty bool := false; v_name bytea; v_next bigint; v_sources int := 0;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true); -- a lease that is lost is a redelivery
  PERFORM mailbox.begin_at(p_qid, p_low);
  t := mailbox.begin_call(p_qid, ARRAY[p_shard], p_wide, p_low_due);
  IF t IS NULL THEN
    RETURN QUERY SELECT -2, v_low, 0::bigint, 0, 0::bigint, 0::bigint, NULL::uuid, NULL::bytea, NULL::bytea,
      convert_to(coalesce(current_setting('mailboxmq.woken', true), ''), 'UTF8'), convert_to(mailbox.endings(), 'UTF8'), NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, false;
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
    ELSE
      SELECT c.p_low, c.seqs, c.why INTO v_low, v_seqs, v_why FROM mailbox.choose(q, p_shard, p_max[i], p_bytes[i], v_ceiling, t, v_low) c;
    END IF;
    v_whys := v_whys || v_why;
    v_empty := v_seqs = '{}' AND v_why = 0;
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
        l.from_reason, l.from_queue, l.from_deliveries, l.from_error, l.releases > 0
      FROM leased l CROSS JOIN LATERAL (SELECT * FROM mailbox.body c WHERE c.seq = l.seq OFFSET 0) b ORDER BY l.n;
    IF q.counted THEN
      PERFORM mailbox.add(p_qid, p_shard, -cardinality(v_seqs), 0, cardinality(v_seqs), 0, 0);
    END IF;
    v_seed := v_seed + cardinality(v_seqs);
    IF q.is_strict THEN
      FOREACH v_name IN ARRAY v_groups LOOP
        UPDATE mailbox.strict_group g SET served = nextval('mailbox.place') WHERE g.qid = p_qid AND g.shard = p_shard AND g.name = v_name;
        PERFORM mailbox.regroup(p_qid, p_shard, v_name);
      END LOOP;
    END IF;
  END LOOP;
  IF v_zero THEN
    PERFORM mailbox.advance(q, p_shard, t, 0);
  END IF;
  IF p_next THEN
    v_next := mailbox.next_due(q, p_shard, t);
    SELECT count(*), least(v_next, min(u.due)) INTO v_sources, v_next FROM mailbox.upstream(p_qid) u WHERE u.qid <> p_qid;
  END IF;
  RETURN QUERY SELECT -1, v_low, t, v_sources, q.version, v_next, NULL::uuid, NULL::bytea, convert_to(v_whys, 'UTF8'),
    convert_to(coalesce(current_setting('mailboxmq.woken', true), ''), 'UTF8'), convert_to(mailbox.endings(), 'UTF8'), NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, false;
END $$;

DROP FUNCTION mailbox.usage(int, bool, bool);

-- usage counts the messages of a queue by shard.
CREATE FUNCTION mailbox.usage(p_qid int, p_ages bool, p_wide bool, p_low bigint DEFAULT 0, p_low_due bigint DEFAULT 0)
RETURNS TABLE (shard int, done bool, ready bigint, delayed bigint, in_flight bigint, dead bigint, bytes bigint, keys bigint,
  oldest_ready bigint, oldest_dead bigint, paused bool, version bigint, woken text, endings text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); t bigint; v_keys bigint; m mailbox.message; v_age bigint; v_dead bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM mailbox.begin_at(p_qid, p_low);
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
        m := mailbox.oldest_ready(p_qid, n);
        v_age := coalesce(greatest(t - m.born, 0), 0);
      END IF;
      SELECT greatest(t - min(a.born), 0) INTO v_dead FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = n AND a.state = 'x';
    END IF;
    RETURN QUERY SELECT n, t IS NOT NULL, c.ready, c.delayed, c.in_flight, c.dead, c.bytes,
      v_keys, v_age, coalesce(v_dead, 0), q.paused, q.version, current_setting('mailboxmq.woken', true), mailbox.endings()
      FROM mailbox.counts(q, n) c;
  END LOOP;
END $$;

-- ack_tx removes a leased message in the transaction of the caller. It returns null if the receipt has expired. Made
-- in time it holds, however late the transaction commits: whatever looks for leases that have ended passes over
-- locked rows. Its transaction may stay open, so it is counted when the row of the inbox is collected.
CREATE OR REPLACE FUNCTION mailbox.ack_tx(p_qid int, p_shard int, p_seq bigint, p_nonce bigint, p_id uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.begin_tx(p_qid); m mailbox.message;
BEGIN
  DELETE FROM mailbox.message a WHERE a.seq = p_seq AND a.qid = p_qid AND a.shard = p_shard AND a.id = p_id AND a.state = 'f'
    AND a.nonce = p_nonce AND a.due > mailbox.clock() RETURNING * INTO m;
  IF m.seq IS NULL THEN
    RETURN NULL;
  END IF;
  DELETE FROM mailbox.body b WHERE b.seq = p_seq;
  INSERT INTO mailbox.inbox (qid, shard, kind, size, grp) VALUES (p_qid, p_shard, CASE WHEN q.is_strict THEN 'g' ELSE 'c' END, m.size, m.grp);
  RETURN pg_current_xact_id()::text;
END $$;

-- collect_one moves a row of the inbox into the queue. Bounds may be exceeded; a message whose dedup key was used is
-- dropped.
CREATE OR REPLACE FUNCTION mailbox.collect_one(q mailbox.queue, r mailbox.inbox, t bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE k record; m mailbox.message; v_place bigint; v_grp bytea; v_due bigint := mailbox.due_at(t, r.delay);
BEGIN
  IF r.kind IN ('c', 'g') THEN
    IF q.counted AND r.size IS NOT NULL THEN -- null: acked before the queue was counted
      PERFORM mailbox.add(q.qid, r.shard, 0, 0, -1, 0, -r.size);
    END IF;
    IF r.kind = 'g' THEN
      PERFORM mailbox.regroup(q.qid, r.shard, r.grp);
    END IF;
  ELSIF r.kind IN ('n', 'r', 'p') THEN
    SELECT * INTO m FROM mailbox.message a WHERE a.seq = r.seq AND a.qid = q.qid AND a.state = 'f' AND a.nonce = r.nonce FOR UPDATE;
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
      INSERT INTO mailbox.dedup AS d (qid, key, digest, id, ends) VALUES (q.qid, r.key, r.digest, r.id, t + q.dedup_window)
        ON CONFLICT (qid, key) DO UPDATE SET digest = excluded.digest, id = excluded.id, ends = excluded.ends;
    END IF;
    v_place := nextval('mailbox.place');
    v_grp := CASE WHEN q.is_strict THEN coalesce(r.grp, '') END;
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error)
      VALUES (r.seq, q.qid, r.shard, CASE WHEN v_due > t THEN 'd' WHEN q.is_strict THEN 's' ELSE 'r' END, v_place, v_place, v_due, v_due,
        r.size, r.id, v_grp, r.from_reason, r.from_queue, r.from_deliveries, r.from_error);
    IF q.is_strict THEN
      PERFORM mailbox.regroup(q.qid, r.shard, v_grp);
    END IF;
    PERFORM mailbox.moved(q, r.shard, NULL, CASE WHEN v_due > t THEN 'd' ELSE 'r' END::"char", r.size);
    PERFORM mailbox.expire_by_count(q, r.shard, t);
  END IF;
END $$;

-- discard removes dead letters, one after the other.
CREATE OR REPLACE FUNCTION mailbox.discard(p_qid int, p_ids uuid[], p_wide bool, OUT removed int, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue := mailbox.rules(p_qid, 0); m mailbox.message; v_id uuid;
BEGIN
  PERFORM mailbox.durable();
  IF mailbox.begin_call(p_qid, ARRAY(SELECT generate_series(0, q.shards - 1)), p_wide, 0) IS NOT NULL THEN
    removed := 0;
    q := mailbox.rules(p_qid, 0);
    FOREACH v_id IN ARRAY p_ids LOOP
      FOR m IN SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.id = v_id AND a.state = 'x' LOOP
        PERFORM mailbox.remove(q, m);
        PERFORM mailbox.advance(mailbox.rules(p_qid, m.shard), m.shard, mailbox.clock(), 0); -- retention may have waited for room
        removed := removed + 1;
      END LOOP;
    END LOOP;
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
  DELETE FROM mailbox.dedup d WHERE d.qid = v_qid;
  DELETE FROM mailbox.schedule s WHERE s.qid = v_qid;
  DELETE FROM mailbox.tally a WHERE a.qid = v_qid;
  RETURN true;
END $$;

-- configure creates a queue (p_version is 0) or changes its configuration, if that is still of this version. It
-- reports whether it did. p_rules are the numbers of the settings, in the order of the columns.
CREATE OR REPLACE FUNCTION mailbox.configure(p_name text, p_version bigint, p_incarnation text, p_config bytea, p_strict bool, p_drop bool,
  p_dead_to text, p_rules bigint[]) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  PERFORM mailbox.durable();
  IF p_version = 0 THEN
    INSERT INTO mailbox.queue (name, incarnation, config, is_strict, drop_expired, dead_to, shards, max_deliveries, max_messages, max_bytes,
      max_in_flight, max_dead, max_hold, dedup_window, dedup_max, ready_age, ready_count, dead_age, dead_count, counted)
      VALUES (p_name, p_incarnation, p_config, p_strict, p_drop, p_dead_to, p_rules[1], p_rules[2], p_rules[3], p_rules[4], p_rules[5], p_rules[6],
        p_rules[7], p_rules[8], p_rules[9], p_rules[10], p_rules[11], p_rules[12], p_rules[13],
        p_rules[3] > 0 OR p_rules[4] > 0 OR p_rules[5] > 0 OR p_rules[11] > 0)
      ON CONFLICT (name) DO NOTHING;
    RETURN FOUND;
  END IF;
  PERFORM mailbox.lock_queue(p_name);
  UPDATE mailbox.queue a SET version = a.version + 1, config = p_config, drop_expired = p_drop, dead_to = p_dead_to, max_deliveries = p_rules[2],
    max_messages = p_rules[3], max_bytes = p_rules[4], max_in_flight = p_rules[5], max_dead = p_rules[6], max_hold = p_rules[7],
    dedup_window = p_rules[8], dedup_max = p_rules[9], ready_age = p_rules[10], ready_count = p_rules[11], dead_age = p_rules[12],
    dead_count = p_rules[13]
    WHERE a.name = p_name AND a.version = p_version AND a.incarnation = p_incarnation;
  RETURN FOUND;
END $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND p.proname IN ('send_from', 'receive', 'ack', 'settle', 'redrive', 'usage', 'ack_tx', 'discard', 'delete_queue') LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
