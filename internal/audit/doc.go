// Package audit keeps the record of what was changed through a daemon: which token
// changed what, when, and with which result. The log is bounded. It never holds
// bodies, attributes or tokens, only ids.
package audit
