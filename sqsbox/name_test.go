package sqsbox

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

var legalName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

func TestNamesThatSQSAllowsAreUnchanged(t *testing.T) {
	for _, name := range []string{"orders", "Orders_2-b", "a--b", "-_", "-_zz", "x.fifo", strings.Repeat("n", 80)} {
		if got := physicalName("", name, false); got != name {
			t.Errorf("%q became %q", name, got)
		}
	}
}

func TestEveryNameHasUniqueLegalPhysicalName(t *testing.T) {
	seen := make(map[string]string)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringN(1, 60, driver.MaxNameBytes), rapid.StringMatching(`[-_0-9A-FHa.]{1,80}`)).Draw(t, "name")
		prefix := rapid.StringMatching(`[a-z-]{0,32}`).Draw(t, "prefix")
		fifo := rapid.Bool().Draw(t, "fifo")
		physical := physicalName(prefix, name, fifo)
		if !legalName.MatchString(strings.TrimSuffix(physical, fifoSuffix)) || len(physical) > maxName {
			t.Fatalf("%q became %q", name, physical)
		}
		want := name
		if fifo && !strings.HasSuffix(name, fifoSuffix) {
			want += fifoSuffix
		}
		got, ok := logicalName(prefix, physical)
		if ok && got != want && got != strings.TrimSuffix(want, fifoSuffix) {
			t.Fatalf("%q became %q and then %q", want, physical, got)
		}
		if !ok && !isCut(physical) {
			t.Fatalf("%q became %q, which logicalName cannot read", name, physical)
		}
		if other, taken := seen[physical]; taken && other != strings.TrimSuffix(want, fifoSuffix) && prefix == "" {
			t.Fatalf("%q and %q are both %q", other, want, physical)
		}
		if prefix == "" {
			seen[physical] = strings.TrimSuffix(want, fifoSuffix)
		}
	})
}

func TestLongNameIsInTags(t *testing.T) {
	for _, name := range []string{strings.Repeat("n", driver.MaxNameBytes), strings.Repeat("漢", 85), strings.Repeat("?", 40)} {
		physical := physicalName("tenant-", name, true)
		if !isCut(physical) {
			t.Errorf("%q of %d bytes is not cut", physical, len(name))
		}
		tags := tagsOf(name)
		for key, value := range tags {
			if len(value) > nameTagBytes {
				t.Errorf("tag %s has %d characters", key, len(value))
			}
		}
		if got, ok := nameOfTags(tags); !ok || got != name {
			t.Errorf("got %q, want %q", got, name)
		}
	}
}

func TestQueueCalledDotFIFO(t *testing.T) {
	if got := physicalName("", fifoSuffix, false); got != "-_2Efifo" {
		t.Errorf("the name %q became %q", fifoSuffix, got)
	}
}

func TestBadPrefixesAreRefused(t *testing.T) {
	for _, prefix := range []string{"a b", "ä", "a.b", strings.Repeat("p", 33)} {
		if _, err := Open(t.Context(), nil, &Options{Prefix: prefix}); err == nil {
			t.Errorf("the prefix %q was taken", prefix)
		}
	}
}

func TestIdsAreTheBitsOfUUIDsAsULIDs(t *testing.T) {
	for uuid, want := range map[string]string{
		"00000000-0000-0000-0000-000000000001": "00000000000000000000000001",
		"ffffffff-ffff-ffff-ffff-ffffffffffff": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"01J0000000000000000000000Z":           "01J0000000000000000000000Z",
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
	} {
		if got := messageID(uuid); got != want {
			t.Errorf("%s became %s, want %s", uuid, got, want)
		}
	}
	if a, b := messageID("not a uuid"), messageID("another"); a == b || len(a) != 26 {
		t.Errorf("ids of another kind became %s and %s", a, b)
	}
}
