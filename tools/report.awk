# Reads the output of go test, with or without -v, prints what a reader wants of it,
# and says at the very end, where one looks, why something failed. Variables:
#
#   show  lines that match it are printed as they come; without it all are
#   test  one line is printed for each subtest of the test of this name, and how many
#         there were; without -v there are none, and that is a failure
#   most  how many lines of a failed test are repeated at the end (80)

BEGIN { if (most == "") most = 80 }

# keep notes a line of a test, or of the package as a whole (no test).
function keep(name, line) {
	if (!(name in count)) names[++tests] = name
	said[name, ++count[name]] = line
}

# repeat appends what a test has said to what is shown at the end.
function repeat(name, i) {
	for (i = 1; i <= count[name] && i <= most; i++) why[++reasons] = said[name, i]
	if (count[name] > most) why[++reasons] = "    (" count[name] - most " lines more, above)"
}

# next_package forgets what the last package has said, or keeps it if that failed.
function next_package(failed, i) {
	if (failed) {
		why[++reasons] = ""
		for (i = 1; i <= tests; i++)
			if (names[i] == "" || names[i] in broken || !verbose) repeat(names[i])
		why[++reasons] = $0
	}
	split("", count); split("", said); split("", names); split("", broken)
	tests = verbose = 0
	current = ""
}

# Without -v the verdict comes first and what was said is below it; with -v it is
# the other way round, and these lines say whose turn it is.
/^=== (RUN|CONT|NAME|PAUSE) / { verbose = 1; current = $3 }

/^=== / { if (show == "" && test == "") print; next }

/^ *--- (PASS|FAIL|SKIP|BENCH): / {
	verdict = $2
	sub(/:$/, "", verdict)
	if (!verbose) current = ""
	if (verdict == "FAIL") broken[$3]
	if (verdict == "FAIL" || !verbose) keep(verbose ? $3 : "", $0)
	if (test != "" && index($3, test "/") == 1) {
		name = substr($3, length(test) + 2)
		gsub("_", " ", name) # go test writes blanks so
		printf "  %s  %s\n", verdict, name
		verdicts[verdict]++
		subtests++
	} else if (show == "" ? test == "" : $0 ~ show) print
	next
}

# What a process says that does not survive belongs to no single test.
/^(panic:|fatal error:|WARNING: DATA RACE|SIG[A-Z]+:|# )/ { current = "" }

{
	boundary = /^(ok|FAIL|\?)[ \t]/
	if (!boundary && !/^(PASS|FAIL)$/) keep(current, $0)
	if (boundary || (show == "" ? test == "" : $0 ~ show)) print
	if (/^ok.*no tests to run/) { next_package(0); why[++reasons] = "nothing was run: " $0 }
	else if (boundary) next_package(/^FAIL/)
	fflush()
}

END {
	if (test != "") {
		printf "  %d passed, %d failed, %d skipped\n", verdicts["PASS"], verdicts["FAIL"], verdicts["SKIP"]
		if (!subtests) why[++reasons] = "nothing was listed: there is no " test " with subtests"
	}
	for (i = 1; i <= tests; i++) # a package that did not come to its end
		if (names[i] in broken) repeat(names[i])
	if (!reasons) exit
	print "\nWhat failed, and why:"
	for (i = 1; i <= reasons; i++) print why[i]
	exit 1
}
