package sqswire

import "sync"

// A structure is an input, an output or a part of one: it lists its members.
type structure interface{ members(m *members) }

// An Input is a decoded request: a pointer to one of the Input structures.
type Input interface{ structure }

// An Output is a result: a pointer to one of the Output structures.
type Output interface{ structure }

// maxMembers is at least the number of members of the largest structure.
const maxMembers = 10

// members is the list of a structure's members. It is an array so that listing
// them does not allocate.
type members struct {
	list  [maxMembers]member
	count int
	// next holds the flags that always and required set for the next member.
	next member
	// url is where the queue's URL goes, if the structure has one.
	url *string
}

// A member is one member of a structure: its names and where its value is. The
// type of value is the kind of the member; the codecs switch on it.
type member struct {
	// name is the name in JSON.
	name string
	// element is the name in Query and XML. It differs for lists and maps,
	// which are named after one of their elements there.
	element string
	// written: the member is written even if it is empty.
	written bool
	// required: requests without the member are refused.
	required bool
	value    any
}

// The kinds that need a type of their own, because the plain type is ambiguous.
type (
	attributeMap struct{ of *map[string]string }
	tagMap       struct{ of *map[string]string }
)

// A structureList is a list of structures of any one type.
type structureList interface {
	length() int
	at(i int) structure
	// grow adds an empty element and returns it. The element is valid until
	// the next call.
	grow() structure
	// empty makes the list present but without elements.
	empty()
}

// structures is a structureList over a slice.
type structures[T any, P interface {
	*T
	structure
}] struct{ of *[]T }

func listOf[T any, P interface {
	*T
	structure
}](of *[]T) structures[T, P] {
	return structures[T, P]{of}
}

func (l structures[T, P]) length() int        { return len(*l.of) }
func (l structures[T, P]) at(i int) structure { return P(&(*l.of)[i]) }
func (l structures[T, P]) empty()             { *l.of = []T{} }

func (l structures[T, P]) grow() structure {
	if cap(*l.of) == 0 {
		*l.of = make([]T, 0, MaxBatchEntries) // requests have no other lists of structures
	}
	var zero T
	*l.of = append(*l.of, zero)
	return P(&(*l.of)[len(*l.of)-1])
}

func (m *members) add(name, element string, value any) {
	m.next.name, m.next.element, m.next.value = name, element, value
	m.list[m.count] = m.next
	m.count++
	m.next = member{}
}

// lists pools member lists: a request needs one for each of its structures, and they
// are larger than most structures.
var lists = sync.Pool{New: func() any { return new(members) }}

// membersOf lists the members of s. Release m when done with the list.
func membersOf(s structure) (m *members, list []member) {
	m, _ = lists.Get().(*members)
	s.members(m)
	return m, m.list[:m.count]
}

// release returns the list to the pool. It clears only the members that were listed:
// clearing all pointers costs much while garbage is marked.
func (m *members) release() {
	clear(m.list[:m.count])
	m.count, m.url = 0, nil
	lists.Put(m)
}

// always makes the next member one that is written even if it is empty.
func (m *members) always() *members {
	m.next.written = true
	return m
}

// required makes the next member one that requests must have.
func (m *members) required() *members {
	m.next.required = true
	return m
}

func (m *members) text(name string, value *string)           { m.add(name, name, value) }
func (m *members) optional(name string, value **string)      { m.add(name, name, value) }
func (m *members) integer(name string, value **int)          { m.add(name, name, value) }
func (m *members) number(name string, value *int64)          { m.add(name, name, value) }
func (m *members) optionalNumber(name string, value **int64) { m.add(name, name, value) }
func (m *members) boolean(name string, value *bool)          { m.add(name, name, value) }
func (m *members) binary(name string, value *[]byte)         { m.add(name, name, value) }

func (m *members) texts(name, element string, value *[]string)    { m.add(name, element, value) }
func (m *members) binaries(name, element string, value *[][]byte) { m.add(name, element, value) }

func (m *members) attributes(name string, value *map[string]string) {
	m.add(name, "Attribute", attributeMap{value})
}

func (m *members) tags(name string, value *map[string]string) {
	m.add(name, "Tag", tagMap{value})
}

func (m *members) values(name, element string, value *map[string]MessageAttributeValue) {
	m.add(name, element, value)
}

func (m *members) structures(name, element string, value structureList) {
	m.add(name, element, value)
}

func (m *members) failed(value *[]BatchResultErrorEntry) {
	m.structures("Failed", "BatchResultErrorEntry", listOf[BatchResultErrorEntry](value))
}

// queueURL lists the member QueueUrl, which may be in the path instead.
func (m *members) queueURL(value *string) {
	m.url = value
	m.required().text("QueueUrl", value)
}
