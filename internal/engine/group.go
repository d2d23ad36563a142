package engine

// groups orders the messages of a queue with strict groups. A group may go
// when its lowest message is ready and none of its messages is out; those that
// may go wait in a heap by the place of their lowest message. Receive takes
// groups from that heap and never searches messages.
type groups struct {
	byName map[string]*group
	// eligible is a heap of the groups that may go.
	eligible []*group
}

type group struct {
	name string
	// waiting holds ready and delayed messages; a delayed one at the head
	// keeps the group back.
	waiting order
	out     int
	// index is the position in eligible, -1 when not there.
	index int
	// place is that of the head when the group became eligible.
	place uint64
	// taken: the batch being received has taken from this group already.
	taken bool
	// more: of the messages at or after from, the shelf has some that are not
	// in waiting; see heldgroups.go.
	more bool
	from uint64
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

// settle brings the heap in line with the state of one group, and forgets a
// group that has nothing left.
func (g *groups) settle(gr *group) {
	head := gr.waiting.head()
	switch {
	case head == nil && gr.out == 0:
		g.remove(gr)
		delete(g.byName, gr.name)
	case head == nil || head.State != Ready || (gr.out > 0 && !gr.taken):
		g.remove(gr)
	case gr.index < 0:
		gr.place = head.Place
		gr.index = len(g.eligible)
		g.eligible = append(g.eligible, gr)
		g.up(gr.index)
	case gr.place != head.Place:
		gr.place = head.Place
		g.up(gr.index)
		g.down(gr.index)
	}
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
		if g.eligible[parent].place <= g.eligible[i].place {
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
			if g.eligible[child].place < g.eligible[least].place {
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
