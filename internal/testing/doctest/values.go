package doctest

import (
	"regexp"
	"slices"
	"strings"
)

// IDs and Moments match ids and points in time, which differ in each run.
var (
	IDs     = regexp.MustCompile(`\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b`)
	Moments = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| UTC)`)
)

var (
	receipts     = regexp.MustCompile(`"receipt":"([^"]+)"`)
	hashes       = regexp.MustCompile(`(sha256:)?\b[0-9a-f]{64}\b`)
	correlations = regexp.MustCompile(`"corr_id":"[^"]+"`)
	zoned        = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d`)
	keys         = regexp.MustCompile(`\bkey [0-9a-f]{8}\b`)
	sizes        = regexp.MustCompile(`\d+\.\d KiB`)
	versions     = regexp.MustCompile(`"version":"[^"]+"`)
)

// A values has the values of a page that differ in each run and appear in later commands: ids
// and receipts, in the order of their appearance.
type values struct{ ids, receipts []string }

func (v *values) add(output string) {
	for _, id := range IDs.FindAllString(output, -1) {
		if !slices.Contains(v.ids, id) {
			v.ids = append(v.ids, id)
		}
	}
	for _, match := range receipts.FindAllStringSubmatch(output, -1) {
		v.receipts = append(v.receipts, match[1])
	}
}

// rewrite replaces the values of v by those of other.
func (v *values) rewrite(text string, other *values) string {
	var pairs []string
	for _, lists := range [][2][]string{{v.ids, other.ids}, {v.receipts, other.receipts}} {
		for i := range min(len(lists[0]), len(lists[1])) {
			pairs = append(pairs, lists[0][i], lists[1][i])
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// steady removes from an output what differs in each run and is not compared.
func steady(output string) string {
	output = hashes.ReplaceAllString(output, "HASH")
	output = correlations.ReplaceAllString(output, `"corr_id":"ID"`)
	output = versions.ReplaceAllString(output, `"version":"V"`)
	output = zoned.ReplaceAllString(output, "TIME")
	output = keys.ReplaceAllString(output, "key KEY")
	output = sizes.ReplaceAllString(output, "SIZE")
	return Moments.ReplaceAllString(output, "TIME")
}
