# Finds the tests whose first statement is a call of package volume that is named in the
# variable calls ("Alone|Measures"), in the test files given as arguments. Prints the
# folders of their packages, or with names=1 a pattern for go test -run.

/^func Test/ { test = $2; sub(/\(.*/, "", test); first = FNR + 1; next }

FNR == first && $0 ~ "^\tvolume\\.(" calls ")\\(t\\)$" {
	folder = FILENAME
	sub(/\/[^\/]*$/, "", folder)
	if (!names && !(folder in seen)) print folder
	if (!(test in seen)) pattern = pattern (pattern == "" ? "" : "|") test
	seen[folder]; seen[test]
}

END { if (names) print "^(" pattern ")$" }
