package tidy_test

import (
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/tidy"
)

// files is a made-up repository.
type files map[string]string

func (f files) tree(t *testing.T, packages ...tidy.Package) *tidy.Tree {
	t.Helper()
	tree, err := tidy.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	tree.Packages = packages
	return tree
}

// expect compares sentences with fragments, one for each, in order.
func expect(t *testing.T, sentences []string, fragments ...string) {
	t.Helper()
	for i, fragment := range fragments {
		if i >= len(sentences) {
			t.Errorf("nothing was said about %q", fragment)
		} else if !strings.Contains(sentences[i], fragment) {
			t.Errorf("sentence %d is %q, want it to contain %q", i, sentences[i], fragment)
		}
	}
	for _, sentence := range sentences[min(len(sentences), len(fragments)):] {
		t.Errorf("unexpected: %s", sentence)
	}
}

const root = "github.com/mailboxmq/mailbox"

func TestImportsFindsWrongDirections(t *testing.T) {
	for _, test := range []struct {
		name string
		pkg  tidy.Package
		want []string
	}{
		{"a clean seam", tidy.Package{Rel: "driver", Deps: []string{"context", "time"}}, nil},
		{
			"the seam with a dependency",
			tidy.Package{Rel: "driver", Deps: []string{"github.com/oklog/ulid/v2"}},
			[]string{"standard library only"},
		},
		{"mailbox on driver", tidy.Package{Rel: ".", Deps: []string{"time", root + "/driver"}}, nil},
		{
			"mailbox on a backend",
			tidy.Package{Rel: ".", Deps: []string{root + "/membox"}},
			[]string{"mailbox depends on " + root + "/membox"},
		},
		{"a backend on the engine", tidy.Package{Rel: "membox", Deps: []string{root + "/internal/engine", root + "/driver"}}, nil},
		{"a backend on mailbox", tidy.Package{Rel: "membox", Deps: []string{root}}, []string{"backends stand below it"}},
		{
			"a backend on another",
			tidy.Package{Rel: "diskbox/vault", Deps: []string{root + "/membox"}},
			[]string{"backends do not know each other"},
		},
		{"the store on mailbox", tidy.Package{Rel: "internal/store", Deps: []string{root}}, []string{"backends stand below it"}},
		{"worker on reply", tidy.Package{Rel: "worker", Deps: []string{root, root + "/reply"}}, nil},
		{"reply on worker", tidy.Package{Rel: "reply", Deps: []string{root + "/worker"}}, []string{"a layer above it"}},
		{
			"a surface on the broker",
			tidy.Package{Rel: "server/internal/httpapi", Imports: []string{root + "/server/internal/broker"}},
			nil,
		},
		{
			"a surface on another",
			tidy.Package{Rel: "server/internal/httpapi", Imports: []string{root + "/server/internal/oapapi"}},
			[]string{"surfaces know the broker"},
		},
		{
			"the broker on a surface",
			tidy.Package{Rel: "server/internal/broker", Imports: []string{root + "/server/internal/oapapi"}},
			[]string{"surfaces know the broker"},
		},
		{
			"a surface on a backend",
			tidy.Package{Rel: "server/internal/rpcapi", Imports: []string{root + "/membox"}},
			[]string{"fronts any driver.Opener"},
		},
		{
			"an engine that locks, logs and reads files",
			tidy.Package{Rel: "internal/engine", Imports: []string{"sync/atomic", "log/slog", "os", "time"}},
			[]string{"imports sync/atomic", "imports log/slog", "imports os"},
		},
		{"rapid in the suite", tidy.Package{Rel: "driver/drivertest", Deps: []string{"pgregory.net/rapid", "testing"}}, nil},
		{"testing in a library", tidy.Package{Rel: "membox", Deps: []string{"testing"}}, []string{"that is for tests"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect(t, tidy.Imports(files{}.tree(t, test.pkg)), test.want...)
		})
	}
}

func TestImportsFindsClocksInTheEngine(t *testing.T) {
	tree := files{
		"internal/engine/a.go": "package engine\nimport clock \"time\"\nvar t = clock.Now()\nvar d clock.Duration\n",
		"membox/a.go":          "package membox\nimport \"time\"\nvar t = time.Now()\n",
	}.tree(t)
	expect(t, tidy.Imports(tree), "internal/engine/a.go:3 calls time.Now")
}

func TestExplainedFindsSilentPackages(t *testing.T) {
	tree := files{
		"membox/example_test.go": "package membox_test\nfunc Example() {}\n",
	}.tree(t,
		tidy.Package{Rel: "membox", Name: "membox", Doc: "Package membox keeps messages in memory."},
		tidy.Package{Rel: "reply", Name: "reply", Doc: "Package reply answers."},
		tidy.Package{Rel: "internal/engine", Name: "engine"},
		tidy.Package{Rel: "cmd/mailboxd", Name: "main", Doc: "Mailboxd is the daemon."},
	)
	expect(t, tidy.Explained(tree), "reply has no Example", "internal/engine has no package comment")
}

func TestNamedFindsEmptyNames(t *testing.T) {
	tree := files{"internal/util/a.go": "package util\n", "internal/backoff/a.go": "package backoff\n"}.tree(t)
	expect(t, tidy.Named(tree), `package name "util" says nothing`)
}

func TestSizesFollowsTheRatchet(t *testing.T) {
	function := func(name string, lines int) string {
		return "func " + name + "() {" + strings.Repeat("\n", lines-1) + "}\n"
	}
	const list = "internal/tidy/ratchet.txt"
	source := "package p\n" + function("long", 80) + function("fine", 70) + "func (x *T[A]) method() {" + strings.Repeat("\n", 90) + "}\n"
	for _, test := range []struct {
		name, ratchet string
		want          []string
	}{
		{"unlisted", "", []string{"func p.go long has 80 lines", "func p.go T.method has 91 lines"}},
		{"listed", "func p.go long 80\nfunc p.go T.method 91\n", nil},
		{"grown and shrunk", "func p.go long 79\nfunc p.go T.method 92\n", []string{"grew from 79 to 80", "shrank from 92 to 91"}},
		{"not needed", "func p.go long 80\nfunc p.go T.method 91\nfunc p.go fine 75\n", []string{"fine has 70 lines now"}},
		{"not there", "func p.go long 80\nfunc p.go T.method 91\nfile q.go 501\n", []string{"file q.go does not exist"}},
		{"no number", "func p.go long 80\nfunc p.go T.method 91\nnonsense\n", []string{"does not end in a number"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect(t, tidy.Sizes(files{"p.go": source, list: test.ratchet}.tree(t)), test.want...)
		})
	}
	long := "package p\n" + strings.Repeat("\n", 600)
	expect(t, tidy.Sizes(files{"p.go": long, "p_test.go": long, "gen/p.go": long}.tree(t)), "file p.go has 601 lines")
}

func TestBannedFindsDecisionsInLibraries(t *testing.T) {
	source := `package p
import ("context"; "fmt"; "log"; "os")
func f(context fakes) {
	context.Background() // a variable, not the package
	fmt.Println("x")
	log.Print("x")
	os.Exit(1)
	panic("x")
	panic("y") // unreachable: the caller checked
	os.Exit(2) // what is on disk is not to be trusted any more
}
var c = context.TODO()
var b = context.Background() // the hook has no context
`
	tree := files{
		"p.go":               source,
		"p_test.go":          source,
		"cmd/tool/main.go":   strings.Replace(source, "package p", "package main", 1),
		"examples/tour/p.go": source,
		"bench/go.mod":       "module bench\n",
		"bench/p.go":         source,
	}.tree(t)
	expect(t, tidy.Banned(tree), "p.go imports log", "p.go:5 calls fmt.Println", "p.go:7 calls os.Exit", "p.go:12 calls context.TODO", "p.go:8 panics")
}

func TestSleepsAllowsVirtualTimeAndReasons(t *testing.T) {
	const list = "internal/tidy/sleeps.txt"
	bubble := "package p\nimport (\"time\"; \"testing/synctest\")\nfunc TestA(t *T) { synctest.Test(t, func(t *T) { time.Sleep(1) }) }\n"
	plain := "package p\nimport \"time\"\nfunc TestB() { time.Sleep(1) }\n"
	for _, test := range []struct {
		name string
		tree files
		want []string
	}{
		{"virtual", files{"a_test.go": bubble}, nil},
		{"real", files{"a_test.go": plain}, []string{"a_test.go:3 calls time.Sleep"}},
		{"in a library", files{"a.go": plain}, []string{"a.go:3 calls time.Sleep"}},
		{"in an example", files{"examples/a/a.go": plain}, nil},
		{"with a reason", files{"a_test.go": plain, list: "a_test.go: a child process is being killed\n"}, nil},
		{"in a folder with a reason", files{"suite/a.go": plain, list: "suite/: it runs on the clock of what it tests\n"}, nil},
		{"without a reason", files{"a_test.go": plain, list: "a_test.go:\n"}, []string{"gives no reason"}},
		{"not needed", files{"a_test.go": bubble, list: "a_test.go: habit\n"}, []string{"does not sleep outside a bubble"}},
	} {
		t.Run(test.name, func(t *testing.T) { expect(t, tidy.Sleeps(test.tree.tree(t)), test.want...) })
	}
}

func TestSkipsFindsSilentSkips(t *testing.T) {
	tree := files{"a_test.go": `package p
import "testing"
func TestA(t *testing.T) { t.Skip() }
func TestB(t *testing.T) { t.Skip("") }
func TestC(t *testing.T) { t.SkipNow() }
func TestD(t *testing.T) { t.Skip("no Redis at REDIS_URL") }
`}.tree(t)
	expect(t, tidy.Skips(tree), "a_test.go:3", "a_test.go:4", "a_test.go:5")
}

func TestMarksFindsCallsThatMakeTestOverlooks(t *testing.T) {
	const head = "package p\nimport (\"testing\"; \"github.com/mailboxmq/mailbox/internal/testing/volume\")\n"
	tree := files{
		"a/a_test.go": head + `func TestA(t *testing.T) {
	volume.Alone(t)
}
func TestB(t *testing.T) {
	t.Parallel()
	volume.Measures(t)
}
func TestC(t *testing.T) {
	volume.Measures(t) // no parallel test
}
func TestD(t *testing.T) { volume.Repeats(t) }
`,
		"b/b_test.go": head + `func TestA(t *testing.T) { t.Run("part", func(t *testing.T) { volume.InFull(t) }); _ = volume.Of(3) }
`,
		"c/c_test.go": head + `func TestE(t *testing.T) {
	volume.InFull(t)
	_ = volume.Part(3, 2)
}
`,
		"d/d_test.go": head + `func TestF(t *testing.T) {
	volume.Repeats(t)
	helper()
}
func TestG(t *testing.T) { helper() }
func TestH(t *testing.T) {}
`,
		"e/e_test.go": head + `func TestF(t *testing.T) {
	volume.OnlyAtLength(t, "it takes hours")
}
func TestE(t *testing.T) {}
func TestI(t *testing.T) {
	volume.Repeats(t)
}
`,
		"f/f_test.go": head + `func TestI(t *testing.T) {}
`,
		"d/helper_test.go": head + "func helper() { deeper() }\nfunc deeper() { _ = volume.Of(3) }\n",
	}.tree(t)
	expect(t, tidy.Marks(tree), "a/a_test.go:13 calls volume.Repeats", "a/a_test.go:4 marks TestA", "a/a_test.go:8 calls volume.Measures", "b: TestA does a part", "d: TestG does a part", "e/e_test.go:6: make test runs TestE in both steps")
}

func TestMarkdownFollowsLinks(t *testing.T) {
	tree := files{
		"README.md":    "# One\n\n## Two words\n\n[ok](docs/a.md#rule-1-it-works) [ok](#two-words) [ok](docs) [ok](https://example.org/x)\n",
		"docs/a.md":    "# A\n\n### Rule-1 It works!\n\n```\n# not a title, [not a link](nowhere.md)\n```\n[up](../README.md)\n",
		"docs/bad.md":  "# A\n# B\n[x](gone.md)\n",
		"docs/frag.md": "# A\n\n[x](a.md#nothing)\n",
		"docs/none.md": "text\n",
	}.tree(t)
	expect(t, tidy.Markdown(tree), "docs/bad.md has 2 titles", "docs/bad.md:3 links to gone.md", "docs/frag.md:3 links to a.md#nothing", "docs/none.md has 0 titles")
}

func TestShownFindsCodeWithoutExample(t *testing.T) {
	tree := files{
		"README.md":         "# R\n\n```go\nfunc shown() {\n}\n```\n\n```go\nfunc invented() {}\n```\n",
		"examples/a/a.go":   "package main\n\nfunc shown() {\n}\n",
		"internal/b/b.go":   "package b\n\nfunc invented() {}\n",
		"docs/semantic.md":  "# S\n\n```go\nfunc sketch() {}\n```\n\n```go\na()\nb()\n```\n",
		"docs/from/x.md":    "# X\n\n```go\nfunc strange() {}\n```\n\n```go\nfunc example() {}\n```\n",
		"c/example_test.go": "package c\n\nfunc example() {}\n\nfunc page() {\n\ta()\n\tb()\n}\n",
	}.tree(t)
	expect(t, tidy.Shown(tree), `begins with "func invented() {}"`, `begins with "func strange() {}"`, `begins with "func sketch() {}"`)
}

func TestPortableFindsMachinePaths(t *testing.T) {
	slash := "/" // so that this file passes the rule it tests
	tree := files{
		"a.txt": "see " + slash + "home/ann/x\n",
		"b.txt": "https://example.org" + slash + "home/x and ./docs" + slash + "work/x and " + slash + "var/x\n",
		"c.sh":  "cd " + slash + "root/x\n",
	}.tree(t)
	expect(t, tidy.Portable(tree), "a.txt:1", "c.sh:1")
}

func TestPromisesComparesRulesWithCases(t *testing.T) {
	tree := files{
		"a_test.go": "package p\nfunc TestHooks(t *T) {}\n",
		"docs/semantics.md": `# S

There are 6
rules.

### SND-1 Has a case

*Lives in: backend.*

### SND-2 Has no case

*Lives in: backend.*

### OBS-3 Has a test

*Lives in: library. Shown by: TestHooks.*

### OBS-4 Has no test

*Lives in: library.*

### OBS-5 Has a test that is gone

*Lives in: library. Shown by: TestGone.*

### BAD-1 Lives nowhere

*Lives in: clouds. Shown by: TestHooks.*

### BAD-2 Says nothing

### Prose
`,
	}.tree(t)
	expect(t, tidy.Promises(tree, []string{"SND-1", "SND-1", "XYZ-9"}),
		"BAD-2", `"Prose" is not a rule`,
		"SND-2 lives in backends and no conformance case",
		"OBS-4 names no test",
		"OBS-5 is said to be shown by TestGone",
		`BAD-1 lives in "clouds"`,
		"cases for XYZ-9",
	)
}

func TestPromisesCountsTheRules(t *testing.T) {
	tree := files{"docs/semantics.md": "# S\n\nThere are 9 rules.\n\n### SND-1 A\n\n*Lives in: backend.*\n"}.tree(t)
	expect(t, tidy.Promises(tree, []string{"SND-1"}), `should say "There are 1 rules."`)
}

func TestInvariantsWantsEvidence(t *testing.T) {
	var table strings.Builder
	table.WriteString("# Invariants\n\n| id | promise | where | shown by |\n|---|---|---|---|\n")
	for _, row := range []string{"I-1 | a | b | `TestCrash`, `SND-1`", "I-2 | a | b | `TestGone`", "I-3 | a | b | `VIS-9`", "I-4 | a | b | surely", "G-1 | a | b | `TestCrash`", "G-1 | a | b | `TestCrash`"} {
		table.WriteString("| " + row + " |\n")
	}
	tree := files{"docs/invariants.md": table.String(), "a_test.go": "package p\nfunc TestCrash(t *T) {}\n"}.tree(t)
	wrong := tidy.Invariants(tree, []string{"SND-1"})
	const missing = 17 + 10 - 5
	if len(wrong) != missing+4 {
		t.Errorf("%d sentences, want %d: %q", len(wrong), missing+4, wrong)
	}
	expect(t, wrong[:4], "lists G-1 twice", "rests I-2 on TestGone", "rests I-3 on case VIS-9", "names no test for I-4")
}

func TestNamesFindsUndeclaredNames(t *testing.T) {
	tree := files{
		"driver/a.go":   "package driver\ntype Queue interface{ Send() }\ntype Config struct{ Max int }\nconst ErrFull = 1\nfunc Open() {}\nfunc (c *Config) Check() {}\n",
		"docs/names.md": "# N\n| source document | here | what differs |\n|---|---|---|\n| `a` | `driver.Queue.Send`, `driver.Config.Max`, `driver.ErrFull` | `nothing` |\n| `b` | `driver.Open`, `driver.Config.Check` | |\n| `c` | `driver.Gone`, `driver.Queue.Gone` | |\n\n| other | table | |\n|---|---|---|\n| `x` | `driver.Gone` | |\n",
	}.tree(t)
	expect(t, tidy.Names(tree), "driver.Gone is not declared", "driver.Queue.Gone is not declared")
}

func TestStaleFindsUnassertedGaps(t *testing.T) {
	tree := files{
		"a_test.go":              "package p\nfunc TestGapIsRefused() {}\n",
		"p.go":                   "// Package p is not\n// yet built.\npackage p\n",
		"README.md":              "# R\n\nThe console is still\nto come.\n\n```\nnot yet\n```\n\nIt is here.\n",
		"docs/a.md":              "# A\n\nRooms do not\nyet grow; x does not exist: `TestGapIsRefused`.\n\n| a | not yet |\n| b | Not yet: `TestGapIsRefused` |\n",
		"docs/decisions/0001.md": "# D\n\nIt does not exist.\n",
	}.tree(t)
	expect(t, tidy.Stale(tree), `README.md:3 says "still to come"`, `docs/a.md:6 says "not yet"`, `p.go:1 says "not yet"`)
}

func TestSnippetsFindsCallsThatDoNotFit(t *testing.T) {
	tree := files{
		"evalloop/a.go": "package evalloop\n\nfunc Submit[T any](ctx, requests, submission T) {}\n\nfunc All(of ...int) {}\n\ntype Report struct{}\n",
		"evalloop/doc.go": `// Package evalloop measures.
//
//	sent, err := evalloop.Submit(ctx, requests, dataset, baseline)
//
// And so on:
//
//	fine, err := evalloop.Submit[int](ctx, requests, evalloop.Report{})
//	evalloop.All()
//	evalloop.Collect(ctx)
//
// This is not code:
//
//	evalloop run --all …
package evalloop
`,
	}.tree(t)
	expect(t, tidy.Snippets(tree), "evalloop.Submit gets 4 arguments", "evalloop has no Collect")
}
