package cli_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/doctest"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/server"
)

// A document is a page with commands, and what it needs beside a shell.
type document struct {
	path    string
	config  server.Config
	sqs     string // the address of the document for clients of SQS, or ""
	modules string // of Python
}

var documents = []document{
	{path: "access.md", config: inMemory()},
	{path: "backup.md", config: onDisk()},
	{path: "configuration.md", config: inMemory()},
	{path: "http.md", config: inMemory()},
	{path: "tutorial.md", config: onDisk()},
	{path: "dead-letters.md", config: inMemory()},
	{path: "operating.md", config: onDisk()},
	{path: "requests.md", config: inMemory()},
	{path: "scaling.md", config: inMemory()},
	{path: "schedules.md", config: inMemory()},
	{path: "tenants.md", config: inMemory()},
	{path: "errors.md", config: inMemory()},
	{path: "workers.md", config: inMemory()},
	{path: "from/localstack.md", config: emulator("localstack"), sqs: "127.0.0.1:4566", modules: "boto3"},
	{path: "from/elasticmq.md", config: emulator("elasticmq"), sqs: "127.0.0.1:9324", modules: "boto3"},
	{path: "from/sqs.md", config: inMemory(), modules: "boto3"},
	{path: "from/bullmq.md", config: inMemory()},
	{path: "from/celery.md", config: emulator("localstack"), sqs: "127.0.0.1:4566", modules: "celery, kombu, boto3, pycurl"},
	{path: "from/rabbitmq.md", config: inMemory()},
}

// emulator returns the configuration of a daemon that stands in for one of SQS.
func emulator(name string) server.Config {
	return server.Config{Backend: "memory:", ListenSQS: "127.0.0.1:0", SQS: server.SQSConfig{Unsigned: true, Compatibility: name}}
}

// TestDocumentsAreTrue runs the commands of documents. With -update their output is written into
// the document.
func TestDocumentsAreTrue(t *testing.T) {
	for _, d := range documents {
		t.Run(d.path, func(t *testing.T) {
			d.need(t)
			home := t.TempDir()
			d.config.DataDir = filepath.Join(home, ".local/state/mailboxd")
			running := start(t, d.config)
			page := doctest.Page{
				Path: filepath.Join("../../../../docs", d.path), Dir: t.TempDir(), Update: *update,
				Environ:   running.environ("HOME="+home, "PATH="+programs(t)+":/usr/bin:/bin"),
				Addresses: map[string]string{"127.0.0.1:9410": running.Address(server.HTTP), "127.0.0.1:9411": running.Address(server.OAP), "~/": home + "/"},
			}
			if d.sqs != "" {
				page.Addresses[d.sqs] = running.Address(server.SQS)
			}
			page.Run(t)
		})
	}
}

// need ends a test whose modules of Python are missing.
func (d *document) need(t *testing.T) {
	t.Helper()
	if d.modules == "" {
		return
	}
	if output, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import "+d.modules).CombinedOutput(); err != nil {
		proctest.End(t, &proctest.MissingError{Program: "Python with " + d.modules, Err: fmt.Errorf("%w: %s", err, output)})
	}
}

// programs returns a folder with mailbox, which is this test.
func programs(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asProgram, program)
	if err := os.WriteFile(filepath.Join(bin, "mailbox"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return bin
}

// elsewhere says, by page and language, which test runs or checks the blocks that
// TestDocumentsAreTrue does not run, or why they are not run.
var elsewhere = map[string]string{
	"go": "internal/tidy wants all of it in a program under examples or an example of a package, which compile",

	"backup.md: ini":      "a unit of systemd, with the command that the page runs",
	"backup.md: text":     "a line for cron, with the command that the page runs",
	"backup.md: sh":       "restoring with systemctl; TestBackupRestoresToItsContent does it with a daemon of its own",
	"benchmarks.md: sh":   "minutes of measuring; bench.TestSuiteWritesFiguresOfAllWorkloads runs a moment of it",
	"deploying.md: ini":   "a unit of systemd",
	"deploying.md: sh":    "systemctl, docker and kubectl; internal/release runs the programs and the image, internal/chart renders the chart",
	"deploying.md: text":  "settings of HAProxy",
	"evidence.md: text":   "the output of a test",
	"install.md: sh":      "docker, and make release; internal/release makes a release and runs its image",
	"metrics.md: yaml":    "monitoring.TestDashboardsAndAlertsFitTheScrape",
	"oap.md: ":            "oap.TestDocumentExampleIsTrue",
	"operating.md: sh":    "systemctl reload; TestRevokedOperatorTokenComesBackAfterReload does the same",
	"operating.md: text":  "queries for Prometheus",
	"postgres.md: sh":     "the same command with a password and a host",
	"postgres.md: sql":    "pgbox.TestDocumentedGrantsSuffice and TestIndexesCanBeBuiltBeforeMigration",
	"requests.md: sh":     "a call that http.md shows too, where it is run",
	"redis.md: ":          "redisbox.TestDocumentedPermissionsAreTested",
	"semantics.md: ":      "a drawing, and a value in a text",
	"sqs.md: sh":          "sqsclients.TestAWSCLIFollowsPrintedEndpoint",
	"sqs.md: toml":        "server.TestFileDeclaresSQSQueues",
	"sqs.md: ini":         "a profile of the AWS CLI; TestTokenIsPrintedAsAWSCredentials reads what its command prints",
	"sqs.md: text":        "sqsapi.TestCredentialsFileMapsKeysToTokens",
	"testing.md: python":  "sqsclients.TestDocumentedFixturesStartTheDaemon, which runs them without pytest",
	"testing.md: js":      "sqsclients.TestDocumentedFixturesStartTheDaemon",
	"testing.md: console": "sqsclients.TestDocumentedFixturesStartTheDaemon",
	"testing.md: java":    "nothing: the SDK and JUnit are on Maven Central, which tests do not ask; the page says so",
	"tutorial.md: sh":     "release.TestTutorialWorksOnEmptyMachine",
	"workers.md: sh":      "tidy.TestWorkerDocumentShowsTheExample compares the program",
	"from/celery.md: sh":  "sqsclients.TestCeleryRunsAllTasksAcrossKill",
	"from/sqs.md: sh":     "sqsclients.TestAWSCLIFollowsPrintedEndpoint",
}

// TestEveryBlockOfTheDocumentsIsRun wants a test, or a reason, for each block of code.
func TestEveryBlockOfTheDocumentsIsRun(t *testing.T) {
	used := make(map[string]bool)
	for _, pattern := range []string{"*.md", "from/*.md"} {
		pages, err := filepath.Glob(filepath.Join("../../../../docs", pattern))
		if err != nil || len(pages) == 0 {
			t.Fatalf("there are no pages: %v", err)
		}
		for _, path := range pages {
			page, err := filepath.Rel("../../../../docs", path)
			text, errRead := os.ReadFile(path)
			if err != nil || errRead != nil {
				t.Fatal(err, errRead)
			}
			run := slices.ContainsFunc(documents, func(d document) bool { return d.path == page })
			for _, b := range doctest.Blocks(string(text)) {
				key := page + ": " + b.Language
				used[key], used[b.Language] = true, true
				if !(run && b.IsRun()) && elsewhere[key] == "" && elsewhere[b.Language] == "" {
					t.Errorf("docs/%s, line %d: nothing runs this block of %q, and nothing says why", page, b.Line, b.Language)
				}
			}
		}
	}
	tests := testNames(t)
	for key, test := range elsewhere {
		if !used[key] {
			t.Errorf("elsewhere names %q, which is in no page", key)
		}
		for _, name := range testName.FindAllString(test, -1) {
			if !tests[name] {
				t.Errorf("elsewhere names %s, which is not a test", name)
			}
		}
	}
}

var testName = regexp.MustCompile(`\bTest[A-Z]\w+`)

// testNames returns the tests of all packages.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir("../../../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, function := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(text, -1) {
			names[string(function[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
