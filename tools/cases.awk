# Reads the output of go test -v and prints what a reader wants of it: one line
# for each subtest of the test that the variable `test` names, the summary of
# go test, and, if anything failed, everything that was said.

/^=== / { next }

{ said[++lines] = $0 }

/^ *--- FAIL/ || /^panic/ || /^FAIL/ { failed = 1 }

/^(ok|FAIL)[ \t]/ { print }

/^ +--- (PASS|FAIL|SKIP): / {
	verdict = $2
	sub(/:$/, "", verdict)
	name = $3
	if (index(name, test "/") != 1) next
	name = substr(name, length(test) + 2)
	gsub("_", " ", name) # go test writes blanks so
	printf "  %s  %s\n", verdict, name
	count[verdict]++
}

END {
	printf "  %d passed, %d failed, %d skipped\n", count["PASS"], count["FAIL"], count["SKIP"]
	if (failed) {
		print ""
		for (i = 1; i <= lines; i++) print said[i]
	}
}
