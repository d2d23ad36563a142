// Package queuemodel is a queue as a model: the rules of docs/semantics.md in the simplest form, for
// comparison with backends. A [Model] takes the time as an argument and searches lists; a [Queue] is
// a driver.Queue on one.
package queuemodel
