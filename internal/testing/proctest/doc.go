// Package proctest runs programs for tests: the commands of this module, built as they are
// shipped, and servers that npm installs. The processes end with the test, even if the test
// process is killed.
package proctest
