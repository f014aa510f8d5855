// What each release of Argo CD requires is in a file of its own: see doc.go.
module github.com/argomesh/argomesh/test/argocd/releases

go 1.26.3
