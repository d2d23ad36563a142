package tidy_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/internal/tidy"
)

// repository is read once for all tests.
var repository = sync.OnceValues(func() (*tidy.Tree, error) { return tidy.Load("../..") })

// hold reports each sentence as a failure of its own.
func hold(t *testing.T, rule func(*tidy.Tree) []string) {
	t.Helper()
	tree, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for _, sentence := range rule(tree) {
		t.Error(sentence)
	}
}

func TestPackagesAreExplained(t *testing.T)          { hold(t, tidy.Explained) }
func TestPackageNamesSaySomething(t *testing.T)      { hold(t, tidy.Named) }
func TestFilesAndFunctionsAreShort(t *testing.T)     { hold(t, tidy.Sizes) }
func TestLibrariesLeaveDecisionsAlone(t *testing.T)  { hold(t, tidy.Banned) }
func TestNothingWaitsByTheClock(t *testing.T)        { hold(t, tidy.Sleeps) }
func TestSkippedTestsSayWhy(t *testing.T)            { hold(t, tidy.Skips) }
func TestMarksOfTestsAreFound(t *testing.T)          { hold(t, tidy.Marks) }
func TestDocumentsHaveOneTitleAndLinks(t *testing.T) { hold(t, tidy.Markdown) }
func TestReadmeCodeIsRun(t *testing.T)               { hold(t, tidy.Shown) }
func TestCodeInCommentsCompiles(t *testing.T)        { hold(t, tidy.Snippets) }
func TestOldNamesLeadToOurs(t *testing.T)            { hold(t, tidy.Names) }
func TestDocumentsStateToday(t *testing.T)           { hold(t, tidy.Stale) }

func TestPackagesPointTheRightWay(t *testing.T) {
	volume.InFull(t)
	hold(t, tidy.Imports)
}

func TestFilesNameNoMachine(t *testing.T) {
	volume.InFull(t)
	hold(t, tidy.Portable)
}

func TestRulesAndCasesAgree(t *testing.T) {
	hold(t, func(tree *tidy.Tree) []string { return tidy.Promises(tree, caseIDs()) })
}

func TestInvariantsAreShown(t *testing.T) {
	hold(t, func(tree *tidy.Tree) []string { return tidy.Invariants(tree, caseIDs()) })
}

func caseIDs() []string {
	var ids []string
	for _, c := range drivertest.Cases() {
		id, _, _ := strings.Cut(c, "/")
		ids = append(ids, id)
	}
	return ids
}
