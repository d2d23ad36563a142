// Package macaroon has the format of tokens: their binary form, the chain of their
// signature, and what their caveats mean. Package capability makes and narrows
// tokens with it, and package verify decides about requests.
package macaroon
