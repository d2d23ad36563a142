// Package site tests what tools/site builds: that the documentation has no dead links, that
// every page can be found, and that the check notices what is wrong.
package site
