-- Unique keys. unique_key is the digest of the key of a message, which the message holds while it is not dead: its row is its entry in the table of keys, so
-- whatever deletes the row, or lets the message die, frees the key. A message that is replaced gets another body under another seq, because bodies are
-- never updated; replaced says so, because its receipts may be of what it said before. Messages with a key and without a group are in the
-- shard of their key, whose lock decides which message holds it.
ALTER TABLE mailbox.message ADD COLUMN IF NOT EXISTS unique_key bytea, ADD COLUMN IF NOT EXISTS replaced bool;
CREATE UNIQUE INDEX IF NOT EXISTS message_unique ON mailbox.message (qid, unique_key) WHERE unique_key IS NOT NULL AND state <> 'x';
ALTER TABLE mailbox.inbox ADD COLUMN unique_key bytea, ADD COLUMN replaces bool;

-- holder returns the message that holds a unique key, or a row of nulls.
CREATE FUNCTION mailbox.holder(p_qid int, p_key bytea) RETURNS mailbox.message LANGUAGE plpgsql AS $$
DECLARE m mailbox.message;
BEGIN
  SELECT * INTO m FROM mailbox.message a WHERE a.qid = p_qid AND a.unique_key = p_key AND a.state <> 'x';
  RETURN m;
END $$;

-- keys_held counts the unique keys that messages of a queue hold.
CREATE FUNCTION mailbox.keys_held(p_qid int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT count(*) FROM mailbox.message a WHERE a.qid = p_qid AND a.unique_key IS NOT NULL AND a.state <> 'x');
END $$;

-- kept_key is the unique key that a message keeps in a queue that it comes to, or null: the group must not decide which of several shards it is in.
CREATE FUNCTION mailbox.kept_key(t mailbox.queue, m mailbox.message) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN m.unique_key IS NULL OR t.shards = 1 THEN m.unique_key
    WHEN NOT t.is_strict AND (SELECT b.grp IS NULL FROM mailbox.body b WHERE b.seq = m.seq) THEN m.unique_key END $$;

-- replace gives a message that waits another body and another due time. It keeps its place, its group, its priority, when it was
-- sent and what is known of its deliveries; its age and its life begin when it is due.
CREATE FUNCTION mailbox.replace(q mailbox.queue, m mailbox.message, p_extra bytea, p_body bytea, p_past bytea[], p_due bigint, p_ttl bigint, t bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_seq bigint := nextval('mailbox.place'); v_size int := length(p_body);
BEGIN
  WITH b AS (DELETE FROM mailbox.body c WHERE c.seq = m.seq RETURNING c.sent_at, c.grp)
    INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) SELECT v_seq, b.sent_at, b.grp, p_extra, p_body FROM b;
  UPDATE mailbox.message a SET seq = v_seq, size = v_size, born = p_due, aged = NULL, ttl = p_ttl, ends = p_due + p_ttl, nonce = 0, replaced = true,
    from_reason = p_past[1], from_queue = p_past[2], from_deliveries = p_past[3], from_error = p_past[4] WHERE a.seq = m.seq;
  IF q.counted AND v_size <> m.size THEN
    PERFORM mailbox.add(q.qid, m.shard, 0, 0, 0, 0, v_size - m.size);
  END IF;
  m.seq := v_seq;
  m.size := v_size;
  PERFORM mailbox.put(q, m, m.place, p_due, t);
  PERFORM mailbox.expire_by_count(q, m.shard, t);
END $$;

-- arrival_shard is the shard of a message that comes from another queue.
CREATE OR REPLACE FUNCTION mailbox.arrival_shard(t mailbox.queue, m mailbox.message) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN t.shards = 1 THEN 0
    ELSE mailbox.shard_of(coalesce((SELECT b.grp FROM mailbox.body b WHERE b.seq = m.seq),
      CASE WHEN t.is_strict THEN ''::bytea ELSE coalesce(m.unique_key, uuid_send(m.id)) END), t.shards) END $$;

-- arrive makes a message of one queue ready at the tail of another. Its age begins again; its life goes on.
CREATE OR REPLACE FUNCTION mailbox.arrive(q mailbox.queue, t mailbox.queue, m mailbox.message, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_shard int := mailbox.arrival_shard(t, m); v_place bigint := nextval('mailbox.place'); v_grp bytea; v_key bytea := mailbox.kept_key(t, m); h mailbox.message; c record;
BEGIN
  IF t.is_strict THEN
    SELECT coalesce(b.grp, '') INTO v_grp FROM mailbox.body b WHERE b.seq = m.seq;
  END IF;
  IF v_key IS NOT NULL THEN
    h := mailbox.holder(t.qid, v_key);
    v_key := CASE WHEN coalesce(h.seq, m.seq) = m.seq THEN v_key END; -- a dead letter must arrive: it has no key if that is held
  END IF;
  UPDATE mailbox.message a SET qid = t.qid, shard = v_shard, state = mailbox.ready_state(t, a.priority),
    place = v_place, arrived = v_place, born = p_at, due = p_at, hold = 0, nonce = 0, deliveries = 0, releases = 0, grp = v_grp, error = m.error,
    error_type = NULL, reason = NULL, dead_at = NULL, from_reason = m.from_reason, from_queue = m.from_queue,
    from_deliveries = m.from_deliveries, from_error = m.from_error,
    ttl = m.ttl, ends = m.ends, priority = CASE WHEN NOT t.is_strict THEN a.priority END, aged = NULL, unique_key = v_key, replaced = NULL
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
  IF q.is_strict AND m.grp IS NOT NULL THEN
    PERFORM mailbox.regroup(q.qid, m.shard, m.grp);
  END IF;
  IF t.is_strict THEN
    PERFORM mailbox.regroup(t.qid, v_shard, v_grp);
  END IF;
  PERFORM mailbox.expire_by_count(mailbox.rules(t.qid, v_shard), v_shard, p_at);
  PERFORM set_config('mailboxmq.woken', coalesce(current_setting('mailboxmq.woken', true), '') || t.qid || ' ', true);
END $$;

DROP FUNCTION mailbox.send_from(int, int[], uuid[], bytea[], bytea[], bytea[], bigint[], bytea[], bytea[], bytea[], bool, bool, bigint, bigint, bigint[], int[], bigint[]);

-- send_from adds messages, in order. Of messages that are not sent, codes says why: d duplicate and c conflict, with
-- the id of the first message; h the unique key is held and p the message that holds it was replaced, with its id; f the queue is full; k there are too many unique
-- keys; w there are too many dedup keys, with the microseconds until
-- one is free. An empty code means that all are sent, and null that the call has to be made again. p_past has
-- four values for each message, which it brought from other queues. keys is the number of dedup keys, if p_count, and held that of unique keys, if p_count_held. p_low and
-- p_low_due are a place and a time up to which the caller knows that nothing is left, as in receive; at, if it is not null, is another such time. p_ttls are the
-- times to live, if a message has one; 0 means that of the queue. p_priorities are null if all are 0, and p_uniques, digests of unique keys, if no message has one. p_levels is p_low for each
-- priority above 0.
CREATE FUNCTION mailbox.send_from(p_qid int, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, p_wide bool, p_low bigint, p_low_due bigint,
  p_ttls bigint[], p_priorities int[], p_levels bigint[], p_uniques bytea[], p_replaces bool[], p_count_held bool,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint, OUT version bigint, OUT woken text, OUT endings text, OUT at bigint, OUT held bigint)
LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; t bigint; v_ruled bool; v_ttl bigint;
BEGIN
  PERFORM mailbox.durable();
  q := mailbox.rules(p_qid, 0);
  v_ttl := nullif(q.ttl, 0);
  v_ruled := q.is_strict OR q.max_messages > 0 OR q.max_bytes > 0 OR q.ready_age > 0 OR q.ready_count > 0 OR p_uniques IS NOT NULL;
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

-- send_from is the other one for processes of the version before.
CREATE FUNCTION mailbox.send_from(p_qid int, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
  p_delays bigint[], p_keys bytea[], p_digests bytea[], p_past bytea[], p_count bool, p_wide bool, p_low bigint, p_low_due bigint,
  p_ttls bigint[] DEFAULT NULL, p_priorities int[] DEFAULT NULL, p_levels bigint[] DEFAULT NULL,
  OUT codes text, OUT ids uuid[], OUT waits bigint[], OUT keys bigint, OUT version bigint, OUT woken text, OUT endings text, OUT at bigint)
LANGUAGE sql AS $$
  SELECT s.codes, s.ids, s.waits, s.keys, s.version, s.woken, s.endings, s.at FROM mailbox.send_from(p_qid, p_shards, p_ids, p_bodies, p_groups, p_extras,
    p_delays, p_keys, p_digests, p_past, p_count, p_wide, p_low, p_low_due, p_ttls, p_priorities, p_levels, NULL, NULL, false) s $$;

DROP FUNCTION mailbox.send_each(mailbox.queue, int[], uuid[], bytea[], bytea[], bytea[], bigint[], bytea[], bytea[], bytea[], bool, bigint, bigint[], int[]);

-- send_each adds messages one by one, for queues with rules and messages with keys.
CREATE FUNCTION mailbox.send_each(q mailbox.queue, p_shards int[], p_ids uuid[], p_bodies bytea[], p_groups bytea[], p_extras bytea[],
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
      v_grp := CASE WHEN q.is_strict THEN coalesce(p_groups[i], '') END;
      INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) VALUES (v_seq, t, p_groups[i], p_extras[i], p_bodies[i]);
      INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error, ttl, ends, priority, unique_key)
        VALUES (v_seq, q.qid, v_shard, CASE WHEN v_due > t THEN 'd' WHEN q.is_strict THEN 's' WHEN p_priorities[i] > 0 THEN 'p' ELSE 'r' END, v_seq, v_seq, v_due, v_due,
          length(p_bodies[i]), p_ids[i], v_grp, p_past[4 * i - 3], p_past[4 * i - 2], p_past[4 * i - 1], p_past[4 * i], v_ttl, v_due + v_ttl, nullif(p_priorities[i], 0), p_uniques[i]);
      held := held + (p_uniques[i] IS NOT NULL)::int;
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
      ELSIF p_what = 'g' AND v_same AND m.state IN ('b', 'h') AND m.nonce = p_nonces[i] AND coalesce(m.ends > t, true) AND mailbox.may_lease(q, m.shard) THEN
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

-- redrive makes dead letters ready again at the tail, with their whole lives, oldest death first: those with these ids, or all, that died
-- after the place p_after and up to p_until, which is null in the first call; it looks at p_limit of them. stopped is set if the queue is full, and more if there may be more. stays is the first
-- that stays because another message, held_by, holds its unique key. moved is null if the call has to be made again.
CREATE FUNCTION mailbox.redrive(p_qid int, p_ids uuid[], p_limit int, p_wide bool, INOUT p_until bigint, INOUT p_after bigint,
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
      IF q.is_strict THEN
        SELECT coalesce(b.grp, '') INTO v_grp FROM mailbox.body b WHERE b.seq = m.seq;
      END IF;
      UPDATE mailbox.message a SET state = mailbox.ready_state(q, a.priority), place = v_place, arrived = v_place,
        born = t, due = t, deliveries = 0, releases = 0, redrives = a.redrives + 1, nonce = 0, hold = 0, reason = NULL, error_type = NULL, dead_at = NULL, grp = v_grp,
        ends = t + a.ttl, aged = NULL, replaced = NULL
        WHERE a.seq = m.seq;
      PERFORM mailbox.moved(q, m.shard, 'x', 'b', m.size);
      IF q.is_strict THEN
        PERFORM mailbox.regroup(p_qid, m.shard, v_grp);
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

-- redrive is the other one for processes of the version before.
CREATE OR REPLACE FUNCTION mailbox.redrive(p_qid int, p_ids uuid[], p_limit int, p_wide bool, INOUT p_until bigint,
  OUT moved int, OUT stopped bool, OUT woken text, OUT endings text) LANGUAGE sql AS $$
  SELECT r.p_until, r.moved, r.stopped, r.woken, r.endings FROM mailbox.redrive(p_qid, p_ids, p_limit, p_wide, p_until, 0) r $$;

DROP FUNCTION mailbox.send_tx(int, int, uuid, bytea, bytea, bytea, bigint, bytea, bytea, bytea, bytea, bytea, bytea, bigint, int);

-- send_tx sends a message in the transaction of the caller, and returns the number of the transaction.
CREATE FUNCTION mailbox.send_tx(p_qid int, p_shard int, p_id uuid, p_body bytea, p_group bytea, p_extra bytea, p_delay bigint, p_key bytea,
  p_digest bytea, p_reason bytea, p_queue bytea, p_deliveries bytea, p_error bytea, p_ttl bigint DEFAULT NULL, p_priority int DEFAULT NULL,
  p_unique bytea DEFAULT NULL, p_replaces bool DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_seq bigint := nextval('mailbox.place');
BEGIN
  PERFORM mailbox.begin_tx(p_qid);
  INSERT INTO mailbox.body (seq, sent_at, grp, extra, body) VALUES (v_seq, mailbox.clock(), p_group, p_extra, p_body);
  INSERT INTO mailbox.inbox (qid, shard, kind, seq, id, size, delay, key, digest, grp, from_reason, from_queue, from_deliveries, from_error, ttl, priority, unique_key, replaces)
    VALUES (p_qid, p_shard, 's', v_seq, p_id, length(p_body), p_delay, p_key, p_digest, p_group, p_reason, p_queue, p_deliveries, p_error, p_ttl, p_priority, p_unique, p_replaces);
  RETURN pg_current_xact_id()::text;
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
      PERFORM mailbox.regroup(q.qid, r.shard, r.grp);
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
    v_grp := CASE WHEN q.is_strict THEN coalesce(r.grp, '') END;
    INSERT INTO mailbox.message (seq, qid, shard, state, place, arrived, born, due, size, id, grp, from_reason, from_queue, from_deliveries, from_error, ttl, ends, priority, unique_key)
      VALUES (r.seq, q.qid, r.shard, CASE WHEN v_due > t THEN 'd' WHEN q.is_strict THEN 's' WHEN r.priority > 0 THEN 'p' ELSE 'r' END, v_place, v_place, v_due, v_due,
        r.size, r.id, v_grp, r.from_reason, r.from_queue, r.from_deliveries, r.from_error, v_ttl, v_due + v_ttl, nullif(r.priority, 0), r.unique_key);
    IF q.is_strict THEN
      PERFORM mailbox.regroup(q.qid, r.shard, v_grp);
    END IF;
    PERFORM mailbox.moved(q, r.shard, NULL, CASE WHEN v_due > t THEN 'd' ELSE 'r' END::"char", r.size);
    PERFORM mailbox.expire_by_count(q, r.shard, t);
  END IF;
END $$;

-- move makes ready messages of a queue ready at the tail of others: those after the place p_after and up to
-- p_until, which is null in the first call, in order. p_to is the target, or null for the queue that each message
-- died in; p_names are the queues that it may be. failed is full if a target is full, gone if p_to is not
-- there, and held with two ids if a message stays because another one holds its unique key. moved is null if the call has to be made again.
CREATE OR REPLACE FUNCTION mailbox.move(p_qid int, p_to text, p_names text[], p_limit int, INOUT p_after bigint, INOUT p_until bigint,
  OUT moved int, OUT more bool, OUT failed text, OUT woken text, OUT endings text) LANGUAGE plpgsql AS $$
DECLARE q mailbox.queue; t mailbox.queue; m mailbox.message; v_now bigint; v_looked int := 0; v_shards int[]; v_advanced int[] := '{}'; v_blocker bigint; h mailbox.message; v_key bytea; v_held bigint; v_held_in int;
BEGIN
  PERFORM mailbox.durable();
  PERFORM mailbox.lock_wide(p_names || ARRAY(SELECT a.name FROM mailbox.queue a WHERE a.qid = p_qid));
  q := mailbox.rules(p_qid, 0);
  v_shards := ARRAY(SELECT generate_series(0, q.shards - 1));
  more := false;
  failed := '';
  IF p_to IS NOT NULL THEN
    SELECT * INTO t FROM mailbox.queue a WHERE a.name = p_to;
    IF NOT FOUND THEN
      failed := 'gone';
    END IF;
  END IF;
  IF failed = '' THEN
    v_now := mailbox.begin_call(p_qid, v_shards, false, 0);
  END IF;
  IF v_now IS NOT NULL THEN
    moved := 0;
    p_until := coalesce(p_until, nextval('mailbox.place'));
    FOR m IN SELECT z.* FROM unnest(v_shards) s CROSS JOIN LATERAL (
        (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = s AND a.state = 'r' AND a.place > p_after AND a.place <= p_until
          ORDER BY a.place LIMIT 1000)
        UNION ALL
        (SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = s AND a.state IN ('b', 's') AND a.place > p_after AND a.place <= p_until
          ORDER BY a.place LIMIT 1000)
        UNION ALL
        (SELECT y.* FROM generate_series(1, CASE WHEN q.leveled THEN 9 ELSE 0 END) k CROSS JOIN unnest('{p,h}'::"char"[]) o CROSS JOIN LATERAL (
          SELECT * FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = s AND a.state IN ('p', 'h') AND a.state = o AND a.priority = k
            AND a.place > p_after AND a.place <= p_until ORDER BY a.place LIMIT 1000) y)) z ORDER BY z.place LIMIT 1000 LOOP
      IF moved >= p_limit THEN
        more := true;
        EXIT;
      END IF;
      v_looked := v_looked + 1;
      p_after := m.place;
      IF q.is_strict THEN
        SELECT a.place INTO v_blocker FROM mailbox.message a WHERE a.qid = p_qid AND a.shard = m.shard AND a.grp = m.grp
          AND a.state IN ('f', 'w') AND a.grp IS NOT NULL ORDER BY a.place LIMIT 1;
        CONTINUE WHEN v_blocker < m.place;
      END IF;
      IF p_to IS NULL THEN
        SELECT * INTO t FROM mailbox.queue a WHERE a.name = ANY (p_names) AND convert_to(a.name, 'UTF8') = m.from_queue AND a.qid <> p_qid;
        CONTINUE WHEN NOT FOUND;
      END IF;
      IF t.qid <> ALL (v_advanced) THEN
        PERFORM mailbox.advance(mailbox.rules(t.qid, s), s, v_now, 0) FROM generate_series(0, t.shards - 1) s;
        v_advanced := v_advanced || t.qid;
      END IF;
      IF NOT mailbox.room(mailbox.rules(t.qid, mailbox.arrival_shard(t, m)), mailbox.arrival_shard(t, m), m.size) THEN
        failed := 'full';
        EXIT;
      END IF;
      v_key := mailbox.kept_key(t, m);
      IF v_key IS NOT NULL THEN
        h := mailbox.holder(t.qid, v_key);
        IF h.seq IS NOT NULL THEN
          failed := CASE WHEN failed = '' THEN 'held ' || m.id || ' ' || h.id ELSE failed END;
          CONTINUE;
        END IF;
        IF t.dedup_max > 0 AND coalesce(v_held_in <> t.qid OR v_held >= t.dedup_max, true) THEN
          v_held := mailbox.keys_held(t.qid); -- those that have just expired may have had keys
          v_held_in := t.qid;
          IF v_held >= t.dedup_max THEN
            failed := 'full';
            EXIT;
          END IF;
        END IF;
        v_held := v_held + 1;
      END IF;
      m.from_reason := NULL;
      m.from_queue := NULL;
      m.from_deliveries := NULL;
      m.from_error := NULL;
      PERFORM mailbox.arrive(q, t, m, v_now);
      moved := moved + 1;
    END LOOP;
    more := more OR v_looked = 1000;
  END IF;
  woken := current_setting('mailboxmq.woken', true);
  endings := mailbox.endings();
END $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND p.proname IN ('send_from', 'settle', 'redrive', 'send_tx', 'move') LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
