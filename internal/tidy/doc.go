// Package tidy holds the rules of this repository that a compiler cannot: which
// package may know which, how long a file may be, what every package has to
// explain, and that documents and tests speak of the same promises.
//
// The rules are functions over a [Tree], the repository as it was read, and
// return one sentence for each thing that is wrong. The tests of this package
// apply them to the repository itself, and to small made-up trees that break
// each rule, so that a rule that cannot fail is noticed.
//
// Exceptions live next to the code: ratchet.txt for sizes, sleeps.txt for tests
// that really wait, words.txt for packages that are not brought up to
// docs/style.md, kept.txt for names that the wire or stored data fixes. They
// may only shrink: a line that is not needed any more is itself an error.
package tidy
