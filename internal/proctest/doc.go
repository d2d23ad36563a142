// Package proctest runs other programs for tests: those of this module, as they are
// shipped, and servers that npm installs. They end with the test, and also when the test
// process is killed.
package proctest
