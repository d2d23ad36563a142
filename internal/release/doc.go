// Package release tests what tools/release builds: that archives, packages and images work,
// and that building them again gives the same bytes.
package release
