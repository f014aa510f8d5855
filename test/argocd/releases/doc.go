// Package argocd, in a module of its own, holds what Argomesh makes of Applications and
// AppProjects against releases of Argo CD other than that of the project's go.mod. A
// module can have one of them, so each has a file of requirements here, for -modfile, and
// the tests compile with all.
//
// They import nothing of Argomesh, whose go.mod asks for another one: TestReleases of
// test/argocd, which runs them with the tag matrix, gives them what our code made in a
// file. Gitops-engine of 3.3 and 3.4 is published nowhere; they have that of 3.5.3, as in
// test/tools/argocd-3.3.
package argocd
