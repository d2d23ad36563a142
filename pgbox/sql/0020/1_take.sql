-- The short way of a claim looks for messages that came back by place, and says so (ORDER BY): the index by birth begins with the queue too, and a server that chose it walked over all that had come
-- back and gone while a transaction was held open.

-- take is receive. If all that is ready was never delivered and no lease ends, it leases the messages of all requests with one statement. It leaves full looks to
-- receive, which notes where the next ones begin.
CREATE OR REPLACE FUNCTION mailbox.take(p_qid int, p_shard int, p_max int[], p_bytes bigint[], p_vis bigint[], p_seed bigint,
  p_low bigint, p_low_due bigint, p_next bool, p_wide bool, p_levels bigint[])
RETURNS TABLE (request int, seq bigint, nonce bigint, deliveries int, first_at bigint, sent_at bigint, id uuid, grp bytea, extra bytea,
  body bytea, error bytea, from_reason bytea, from_queue bytea, from_deliveries bytea, from_error bytea, released bool, priority int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE t bigint; v_version bigint; v_salt bigint; v_hold bigint; v_seqs bigint[]; v_places bigint[]; v_size bigint; v_ends int[] := '{}'; v_all int := 0; v_got int;
  v_last int; v_next bigint; v_sources int := 0; v_low bigint := p_low;
BEGIN
  IF p_low > 0 AND p_low_due > 0 AND NOT p_wide AND p_vis[1] = ALL (p_vis) AND p_vis[1] > 0 AND current_setting('transaction_isolation') = 'read committed' THEN
    PERFORM set_config('synchronous_commit', 'off', true); -- a lease that is lost is a redelivery
    PERFORM pg_advisory_xact_lock(mailbox.lock_key(0, p_qid, p_shard));
    FOREACH v_last IN ARRAY p_max LOOP
      v_all := v_all + v_last;
      v_ends := v_ends || v_all;
    END LOOP;
    t := mailbox.clock();
    SELECT a.version, hashtextextended(a.incarnation, 0), a.max_hold, s.seqs, s.places, s.size INTO v_version, v_salt, v_hold, v_seqs, v_places, v_size
      FROM mailbox.queue a CROSS JOIN LATERAL (SELECT array_agg(r.seq) AS seqs, array_agg(r.place) AS places, sum(r.size) AS size FROM (
        SELECT b.seq, b.place, b.size FROM mailbox.message b WHERE b.qid = p_qid AND b.shard = p_shard AND b.state = 'r' AND b.place > p_low ORDER BY b.place LIMIT v_all) r) s
      WHERE a.qid = p_qid AND NOT (a.paused OR a.is_strict OR a.is_fair OR a.counted OR a.leveled OR a.mortal OR a.limited OR a.max_in_flight > 0
          OR a.ready_age > 0 OR a.ready_count > 0 OR a.dead_age > 0 OR a.dead_count > 0)
        AND NOT EXISTS (SELECT FROM mailbox.message d WHERE d.qid = p_qid AND d.shard = p_shard AND d.state IN ('d', 'w', 'f') AND d.due > p_low_due AND d.due <= t)
        AND NOT EXISTS (SELECT FROM (SELECT * FROM mailbox.back k WHERE k.qid = p_qid AND k.shard = p_shard ORDER BY k.version DESC LIMIT 1) k
          CROSS JOIN LATERAL unnest(k.orders, k.lows, k.highs) AS u(o, low, high) CROSS JOIN LATERAL (SELECT FROM mailbox.message c
            WHERE c.qid = p_qid AND c.shard = p_shard AND c.state IN ('b', 's') AND c.place BETWEEN u.low AND u.high ORDER BY c.place LIMIT 1) c WHERE u.o = 0);
  END IF;
  IF v_version IS NULL OR v_size > (SELECT min(s) FROM unnest(p_bytes) s WHERE s > 0) THEN
    RETURN QUERY SELECT * FROM mailbox.receive(p_qid, p_shard, p_max, p_bytes, p_vis, p_seed, p_low, p_low_due, p_next, p_wide, p_levels);
    RETURN;
  END IF;
  v_got := coalesce(cardinality(v_seqs), 0);
  IF v_got > 0 THEN
    v_low := v_places[v_got];
    RETURN QUERY WITH leased AS (
      UPDATE mailbox.message a SET state = 'f', deliveries = 1, due = t + p_vis[1], first_at = t, started = true,
        hold = CASE WHEN v_hold > 0 THEN t + greatest(v_hold, 10 * p_vis[1]) ELSE 0 END,
        nonce = mailbox.nonce_of(v_salt, a.seq, a.place, p_seed + a.seq)
        WHERE a.seq = ANY (v_seqs) RETURNING a.seq, a.place, a.nonce, a.id, a.from_reason, a.from_queue, a.from_deliveries, a.from_error)
      SELECT width_bucket(width_bucket(l.place, v_places) - 1, v_ends), l.seq, l.nonce, 1, t, b.sent_at, l.id, b.grp, b.extra, b.body, NULL::bytea,
        l.from_reason, l.from_queue, l.from_deliveries, l.from_error, false, 0
      FROM leased l CROSS JOIN LATERAL (SELECT * FROM mailbox.body c WHERE c.seq = l.seq OFFSET 0) b ORDER BY l.place;
  END IF;
  IF p_next AND v_got <= v_all - v_last THEN -- the last request got none
    SELECT d.due INTO v_next FROM mailbox.message d WHERE d.qid = p_qid AND d.shard = p_shard AND d.state IN ('d', 'w', 'f') AND d.due > t AND d.due <= t + 3000000
      ORDER BY d.due LIMIT 1;
    IF EXISTS (SELECT FROM mailbox.queue u WHERE u.dead_to = (SELECT a.name FROM mailbox.queue a WHERE a.qid = p_qid) AND u.dead_to <> '') THEN
      SELECT count(*), least(v_next, min(u.due)) INTO v_sources, v_next FROM mailbox.upstream(p_qid) u;
    END IF;
  END IF;
  RETURN QUERY SELECT -1, v_low, t, v_sources, v_version, v_next, NULL::uuid, NULL::bytea, convert_to(repeat('0', cardinality(p_max)), 'UTF8'),
    ''::bytea, ''::bytea, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bytea, false, 0;
END $$;

-- See 0001/7_plans.sql; replacing a function drops its settings.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace AND p.proname = 'take' LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
