// Package sqswire is the wire of Amazon SQS without its behaviour: what requests
// look like, how answers and errors are written, and the checks that need
// nothing but the request.
//
// Two protocols are spoken. AWS JSON 1.0 names the action in the header
// X-Amz-Target and has a JSON document as body; AWS Query has the action and its
// parameters in the URL or in a form and is answered in XML, or in JSON where
// the client accepts nothing else. [Read] takes a request of either kind and
// [Call.Decode] makes one of the Input structures of it; [Call.Answer] and
// [Call.Fail] write what the client of that protocol understands.
//
// Each structure lists its members once, in its method members, with their names
// in both protocols. The four codecs (JSON and Query in, JSON and XML out) work
// on that list, so that a member cannot be known to one and unknown to another.
//
// Nothing here blocks except reading a request's body and writing an answer.
package sqswire
