-- Reply slots. Times are microseconds since 1970. state: p pending, r resolved, c cancelled. A slot whose time is over is
-- expired, whatever its state.
CREATE TABLE mailbox.slot (
  id text COLLATE "C" PRIMARY KEY,
  state "char" NOT NULL DEFAULT 'p',
  created bigint NOT NULL,
  expires bigint NOT NULL,
  resolved bigint NOT NULL DEFAULT 0,
  body bytea,
  failure bytea,
  kind bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX slot_expires ON mailbox.slot (expires);

-- create_slot makes a pending slot, and removes a few that have been expired for a minute. code: s done, t the id is taken,
-- f there are p_max slots. slots is their number, if p_count.
CREATE FUNCTION mailbox.create_slot(p_id text, p_ttl bigint, p_max bigint, p_count bool, OUT code text, OUT slots bigint) LANGUAGE plpgsql AS $$
DECLARE t bigint := mailbox.clock();
BEGIN
  PERFORM mailbox.durable();
  PERFORM mailbox.sweep_slots(t - 60000000, 4);
  IF p_count THEN
    SELECT count(*) INTO slots FROM mailbox.slot a WHERE a.expires > 0;
  END IF;
  code := 'f';
  IF slots IS NULL OR slots < p_max THEN
    INSERT INTO mailbox.slot (id, created, expires) VALUES (p_id, t, t + p_ttl) ON CONFLICT (id) DO NOTHING;
    code := CASE WHEN FOUND THEN 's' ELSE 't' END;
  END IF;
END $$;

-- sweep_slots removes slots whose time was over at a time, and counts them.
CREATE FUNCTION mailbox.sweep_slots(p_until bigint, p_limit int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE v_count int;
BEGIN
  DELETE FROM mailbox.slot d WHERE d.id = ANY (ARRAY(SELECT a.id FROM mailbox.slot a WHERE a.expires <= p_until ORDER BY a.expires LIMIT p_limit FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;

-- slot_state returns the state of a slot: e expired, n if it is not known.
CREATE FUNCTION mailbox.slot_state(p_id text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN coalesce((SELECT CASE WHEN a.expires <= mailbox.clock() THEN 'e' ELSE a.state::text END FROM mailbox.slot a WHERE a.id = p_id), 'n');
END $$;

-- write_slot resolves (r) or cancels (c) a pending slot. It returns s, or the state that the slot was in.
CREATE FUNCTION mailbox.write_slot(p_id text, p_state text, p_body bytea, p_failure bytea, p_kind bytea) RETURNS text LANGUAGE plpgsql AS $$
DECLARE t bigint;
BEGIN
  PERFORM mailbox.durable();
  PERFORM FROM mailbox.slot a WHERE a.id = p_id FOR UPDATE; -- the clock is read when no other write is under way
  t := mailbox.clock();
  UPDATE mailbox.slot a SET state = p_state::"char", resolved = t, body = p_body, failure = p_failure, kind = p_kind
    WHERE a.id = p_id AND a.state::text = 'p' AND a.expires > t;
  RETURN CASE WHEN FOUND THEN 's' ELSE mailbox.slot_state(p_id) END;
END $$;

-- read_slot returns a slot, with the time in left until it expires, and if p_take removes it unless it is pending.
CREATE FUNCTION mailbox.read_slot(p_id text, p_take bool, OUT state text, OUT created bigint, OUT expires bigint, OUT resolved bigint,
  OUT body bytea, OUT failure bytea, OUT kind bytea, OUT life bigint) LANGUAGE plpgsql AS $$
DECLARE s mailbox.slot;
BEGIN
  IF p_take THEN
    PERFORM mailbox.durable();
    SELECT * INTO s FROM mailbox.slot a WHERE a.id = p_id FOR UPDATE;
  ELSE
    SELECT * INTO s FROM mailbox.slot a WHERE a.id = p_id;
  END IF;
  life := s.expires - mailbox.clock();
  state := CASE WHEN s.id IS NULL THEN 'n' WHEN life <= 0 THEN 'e' ELSE s.state::text END;
  created := s.created;
  expires := s.expires;
  IF state = 'r' THEN
    resolved := s.resolved;
    body := s.body;
    failure := s.failure;
    kind := s.kind;
  END IF;
  IF p_take AND state NOT IN ('p', 'n') THEN
    DELETE FROM mailbox.slot a WHERE a.id = p_id;
  END IF;
END $$;

-- delete_slot removes a slot, and reports whether there was one.
CREATE FUNCTION mailbox.delete_slot(p_id text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  PERFORM mailbox.durable();
  DELETE FROM mailbox.slot a WHERE a.id = p_id;
  RETURN FOUND;
END $$;

-- expired_slots lists slots whose time is over, the first first.
CREATE FUNCTION mailbox.expired_slots(p_limit int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE t bigint := mailbox.clock();
BEGIN
  RETURN QUERY SELECT a.id FROM mailbox.slot a WHERE a.expires <= t ORDER BY a.expires LIMIT p_limit;
END $$;

-- See 0001/7_plans.sql.
DO $$
DECLARE v_name text;
BEGIN
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{{schema}}'::regnamespace
    AND p.proname IN ('create_slot', 'sweep_slots', 'write_slot', 'read_slot', 'delete_slot', 'expired_slots') LOOP
    EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off', v_name);
  END LOOP;
END $$;
