// Package install is `agentctl hub install`, `agentctl spoke install` and their opposites: it
// has one side of Argomesh be as its chart and its values say.
//
// Each run looks at what there is, says what it will do, does what is missing, waits until
// the pods are ready, and ends with the next command. A run that was ended anywhere is finished by
// another. Checks and the API server's own refusals come before the first write.
package install
