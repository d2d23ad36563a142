package engine

// groups orders the messages of a queue with strict or fair groups. A strict
// group may go when its lowest message is ready and none of its messages is out;
// a fair one when it has a message that is ready, see fair.go. Those that may go
// wait in a heap by their turns. Receive takes groups from that heap and never
// searches messages.
type groups struct {
	byName map[string]*group
	// eligible is a heap of the groups that may go.
	eligible []*group
	// served counts the deliveries of fair groups.
	served uint64
	// idle is the first of the fair groups that had nothing left at some time in
	// the present instant.
	idle *group
}

type group struct {
	name string
	// waiting holds ready messages and, if the group is strict, delayed ones; a
	// delayed one at the head keeps the group back.
	waiting order
	out     int
	// index is the position in eligible, -1 when not there.
	index int
	// turn is where it stands in eligible.
	turn turn
	// after is the last place that was given when the group was served last, if
	// it is fair.
	after uint64
	// taken: the batch being received has taken from this group already.
	taken bool
	// more: of the messages at or after from, the shelf has some that are not
	// in waiting; see heldgroups.go.
	more bool
	from uint64
	// sure, known: see heldfair.go.
	sure, known bool
	// listed: it is among the idle ones, before nextIdle.
	listed   bool
	nextIdle *group
}

// turn says where a group stands among those that may go. Of a strict group only
// the place counts, which is that of its head.
type turn struct {
	out    int
	place  uint64
	served uint64 // the number of its latest delivery; 0: none
}

func (t turn) before(u turn) bool {
	if t.out != u.out {
		return t.out < u.out
	}
	if t.place != u.place {
		return t.place < u.place
	}
	return t.served < u.served
}

func (g *groups) get(name string) *group {
	if g.byName == nil {
		g.byName = make(map[string]*group)
	}
	if found := g.byName[name]; found != nil {
		return found
	}
	made := &group{name: name, index: -1}
	g.byName[name] = made
	return made
}

// settle brings the heap in line with the state of one strict group, and forgets a
// group that has nothing left.
func (g *groups) settle(gr *group) {
	head := gr.waiting.head()
	switch {
	case head == nil && gr.out == 0:
		g.forget(gr)
	case head == nil || head.State != Ready || (gr.out > 0 && !gr.taken):
		g.remove(gr)
	default:
		g.put(gr, turn{place: head.Place})
	}
}

// put lets a group stand where its turn says.
func (g *groups) put(gr *group, at turn) {
	switch {
	case gr.index < 0:
		gr.turn = at
		gr.index = len(g.eligible)
		g.eligible = append(g.eligible, gr)
		g.up(gr.index)
	case gr.turn != at:
		gr.turn = at
		g.up(gr.index)
		g.down(gr.index)
	}
}

func (g *groups) forget(gr *group) {
	g.remove(gr)
	delete(g.byName, gr.name)
}

func (g *groups) remove(gr *group) {
	i, last := gr.index, len(g.eligible)-1
	if i < 0 {
		return
	}
	if i != last {
		g.swap(i, last)
	}
	g.eligible[last] = nil
	g.eligible = g.eligible[:last]
	if i != last {
		moved := g.eligible[i]
		g.up(i)
		g.down(moved.index)
	}
	gr.index = -1
}

func (g *groups) swap(i, j int) {
	e := g.eligible
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

func (g *groups) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !g.eligible[i].turn.before(g.eligible[parent].turn) {
			return
		}
		g.swap(i, parent)
		i = parent
	}
}

func (g *groups) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(g.eligible); child++ {
			if g.eligible[child].turn.before(g.eligible[least].turn) {
				least = child
			}
		}
		if least == i {
			return
		}
		g.swap(i, least)
		i = least
	}
}
