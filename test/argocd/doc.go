// Package argocd holds what backends/ownership reads and writes against Argo CD's
// own Go types: its small views of Applications and AppProjects are right only
// as long as these tests pass with the release of Argo CD that go.mod names.
//
// Most here goes through real Mirrors over backends/memory: objects are made with
// Argo CD's types on one side, what arrives on the other is read with them, strictly,
// and its own functions tell whether it means the same. Folder releases is for other
// releases. The types take minutes to build, so no other package may
// import them.
package argocd
