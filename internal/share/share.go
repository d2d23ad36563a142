package share

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	// ActiveFor is how long an owner that holds nothing counts as active after it
	// asked: long enough that a client that retries is never taken for gone.
	ActiveFor = 10 * time.Second
	// reservePart is the part of a limit that an owner leaves for others when it
	// is alone.
	reservePart = 8
	// keptIdle is how many owners that hold nothing a node remembers, whatever
	// they asked for: a few words each.
	keptIdle = 64
)

// A Key names an owner among its siblings: a tenant by its name, a token by its
// id, an address by either. The zero Key is an owner too.
type Key struct {
	Name string
	ID   [16]byte
}

// A Path names an owner from the root of the tree down. It has at least one key.
type Path []Key

// A Pool is one resource. It is safe for concurrent use, starts no goroutine, and
// does not allocate for an owner that took something not long ago.
type Pool struct {
	resource, setting string
	retryAfter        time.Duration
	start             time.Time
	refusals          atomic.Uint64

	mu      sync.Mutex // guards the fields below
	limit   int64
	crowded int64 // the limit while several children of the root are active; 0: the same
	root    node
}

// A node is an owner, or the whole pool.
type node struct {
	used     int64
	holding  int           // children that hold something
	asked    time.Duration // when it asked last
	children map[Key]*node // nil while there are none
	sweepAt  int           // children at which idle ones are forgotten

	// last and before are the two children that asked last, and when: enough to
	// know for each child whether another one asked a moment ago.
	last, before asking
}

type asking struct {
	key Key
	at  time.Duration // 0: never
}

// New returns a pool with this many units. resource and setting are for people:
// what is divided, and which setting bounds it. retryAfter is when an owner that
// was refused should ask again.
func New(resource, setting string, limit int64, retryAfter time.Duration) *Pool {
	return &Pool{resource: resource, setting: setting, limit: limit, retryAfter: retryAfter, start: time.Now()}
}

// now is never 0.
func (p *Pool) now() time.Duration { return time.Since(p.start) + 1 }

// SetLimit changes how many units there are. Owners keep what they hold.
func (p *Pool) SetLimit(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = limit
}

// SetCrowded sets how many units there are while several children of the root are
// active: fewer, where each makes all others slower.
func (p *Pool) SetCrowded(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crowded = limit
}

// Take takes n units for an owner, or none. The error is ErrFull, and names the
// share that is used up.
func (p *Pool) Take(path Path, n int64) error {
	p.mu.Lock()
	room, tight := p.roomLocked(path)
	if room < n {
		err := p.refuseLocked(path, tight)
		p.mu.Unlock()
		return err
	}
	p.addLocked(path, n)
	p.mu.Unlock()
	return nil
}

// try is Take for an owner that waits if it is refused: that is not counted as a
// refusal, and has no error.
func (p *Pool) try(path Path, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	room, _ := p.roomLocked(path)
	if room < n {
		return false
	}
	p.addLocked(path, n)
	return true
}

// TakeUpTo takes as many units as the owner may have, and most at most. With waits
// the owner will hold them for a while without use, and takes no more than a
// half of what it may have divided by waits.
func (p *Pool) TakeUpTo(path Path, most int64, waits int) (int64, error) {
	p.mu.Lock()
	room, tight := p.roomLocked(path)
	if room < 1 {
		err := p.refuseLocked(path, tight)
		p.mu.Unlock()
		return 0, err
	}
	if waits > 0 {
		room = max(1, room/2/int64(waits))
	}
	n := min(room, most)
	p.addLocked(path, n)
	p.mu.Unlock()
	return n, nil
}

// Charge counts n units for an owner whatever its share is: for what exists
// already, and cannot be refused.
func (p *Pool) Charge(path Path, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.walkLocked(path)
	p.addLocked(path, n)
}

// Move counts n units for another owner, if its share has room, or leaves them
// where they are. The error is that of Take.
func (p *Pool) Move(from, to Path, n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveLocked(from, n)
	room, tight := p.roomLocked(to)
	if room < n {
		err := p.refuseLocked(to, tight)
		p.walkLocked(from) // making room for to may have forgotten it
		p.addLocked(from, n)
		return err
	}
	p.addLocked(to, n)
	return nil
}

// Held returns how many units an owner holds.
func (p *Pool) Held(path Path) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := &p.root
	for _, key := range path {
		if n = n.children[key]; n == nil {
			return 0
		}
	}
	return n.used
}

// Give returns n units of an owner.
func (p *Pool) Give(path Path, n int64) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	p.giveLocked(path, n)
	p.mu.Unlock()
}

// A shortage says which level refuses: how much its owner holds, and how much it
// may.
type shortage struct {
	level      int // in the path; -1 is the whole pool
	used, most int64
}

// roomLocked returns how many units the owner may take now, and what bounds it.
// It notes that the owner asked.
func (p *Pool) roomLocked(path Path) (room int64, tight shortage) {
	now := p.now()
	limit := p.limit
	if first := p.root.child(path[0], now); p.crowded > 0 && p.root.contested(path[0], first, now) {
		limit = p.crowded
	}
	room = max(0, limit-p.root.used)
	tight = shortage{-1, p.root.used, limit}
	parent := &p.root
	for i, key := range path {
		child := parent.child(key, now)
		reserve := limit / reservePart
		most := limit - reserve
		if parent.contested(key, child, now) {
			most = max(1, limit/2)
		}
		// Before the reserve, and within it.
		free := max(limit-reserve-parent.used, (limit-parent.used-child.used)/2)
		if child.used == 0 {
			free = max(free, 1)
		}
		parent.note(key, child, now)
		if here := max(0, min(most-child.used, free)); here < room {
			room, tight = here, shortage{i, child.used, most}
		}
		parent, limit = child, most
	}
	return room, tight
}

// walkLocked makes the nodes of a path.
func (p *Pool) walkLocked(path Path) {
	now := p.now()
	parent := &p.root
	for _, key := range path {
		child := parent.child(key, now)
		parent.note(key, child, now)
		parent = child
	}
}

// addLocked counts n units. The nodes of the path are there.
func (p *Pool) addLocked(path Path, n int64) {
	if n == 0 {
		return
	}
	parent := &p.root
	for _, key := range path {
		parent.used += n
		child := parent.children[key]
		if child.used == 0 {
			parent.holding++
		}
		parent = child
	}
	parent.used += n
}

// giveLocked is the reverse of addLocked.
func (p *Pool) giveLocked(path Path, n int64) {
	parent := &p.root
	for _, key := range path {
		parent.used -= n
		child := parent.children[key]
		if child.used == n {
			parent.holding--
		}
		parent = child
	}
	parent.used -= n
}

// child returns the node of a key, made if it is not there.
func (n *node) child(key Key, now time.Duration) *node {
	if found := n.children[key]; found != nil {
		return found
	}
	if len(n.children) >= max(n.sweepAt, keptIdle) {
		n.sweep(now)
	}
	if n.children == nil {
		n.children = make(map[Key]*node)
	}
	made := &node{}
	n.children[key] = made
	return made
}

// sweep forgets the children that hold nothing: those that are not active, and if
// many are left, the others too. What is forgotten with those is at most that they
// asked.
func (n *node) sweep(now time.Duration) {
	idle := 0
	for key, c := range n.children {
		switch {
		case c.used > 0:
		case now-c.asked >= ActiveFor:
			delete(n.children, key)
		default:
			idle++
		}
	}
	if idle > keptIdle {
		for key, c := range n.children {
			if c.used == 0 {
				delete(n.children, key)
			}
		}
	}
	n.sweepAt = 2 * len(n.children)
}

// contested reports whether a child other than this one is active.
func (n *node) contested(key Key, child *node, now time.Duration) bool {
	others := n.holding
	if child.used > 0 {
		others--
	}
	other := n.last
	if other.at == 0 || other.key == key {
		other = n.before
	}
	return others > 0 || other.at != 0 && now-other.at < ActiveFor
}

// note writes down that a child asked.
func (n *node) note(key Key, child *node, now time.Duration) {
	child.asked = now
	if n.last.at != 0 && n.last.key != key {
		n.before = n.last
	}
	n.last = asking{key, now}
}

// refuseLocked counts a refusal and returns the error for it.
func (p *Pool) refuseLocked(path Path, tight shortage) error {
	p.refusals.Add(1)
	bound := fmt.Sprintf("%s %d", p.setting, p.limit)
	detail := fmt.Sprintf("%s limit reached (%s)", p.resource, bound)
	if tight.level >= 0 {
		detail = fmt.Sprintf("%s share of %s used up: %d of %d (%s)", p.resource, owner(path, tight.level), tight.used, tight.most, bound)
	}
	return &driver.Error{Code: driver.ErrFull, Detail: detail, RetryAfter: p.retryAfter}
}

// owner names an owner for its holder, who knows which token it shows.
func owner(path Path, level int) string {
	switch {
	case level == 0 && path[0].Name == "":
		return "tokens without a tenant"
	case level == 0 && len(path) == 1:
		return fmt.Sprintf("%q", path[0].Name)
	case level == 0:
		return fmt.Sprintf("tenant %q", path[0].Name)
	case level == 1:
		return "the token"
	}
	return "the narrowed token"
}

// Stats are figures of a pool, for metrics.
type Stats struct {
	Resource    string
	Used, Limit int64
	// Owners are the children of the root that hold something: tenants, or
	// addresses.
	Owners   int
	Refusals uint64
}

// Stats returns the figures as they are now.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Resource: p.resource, Used: p.root.used, Limit: p.limit, Owners: p.root.holding, Refusals: p.refusals.Load()}
}

// An Owned is what one tenant or address holds.
type Owned struct {
	Name string
	Used int64
}

// Owners lists who holds something at the first level, in no order: for operators,
// who see all tenants.
func (p *Pool) Owners() []Owned {
	p.mu.Lock()
	defer p.mu.Unlock()
	owners := make([]Owned, 0, p.root.holding)
	for key, n := range p.root.children {
		if n.used > 0 {
			owners = append(owners, Owned{key.Name, n.used})
		}
	}
	return owners
}
