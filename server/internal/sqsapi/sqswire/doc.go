// Package sqswire implements the wire protocols of Amazon SQS without its behaviour:
// it decodes requests, encodes answers and errors, and does the checks that need only
// the request.
//
// There are two protocols. AWS JSON 1.0 names the action in the header X-Amz-Target
// and has a JSON document as body; AWS Query has the action and its parameters in the
// URL or in a form and is answered in XML, or in JSON if the client accepts nothing
// else. [Read] reads a request of either protocol and [Call.Decode] decodes it into one
// of the Input structures; [Call.Answer] and [Call.Fail] write the answer in the
// protocol of the request.
//
// Each structure lists its members once, in its method members, with their names
// in both protocols. The four codecs (JSON and Query in, JSON and XML out) use that
// list, so that they all know the same members.
//
// Nothing here blocks except reading a request's body and writing an answer.
package sqswire
