// Gitops-engine under the name by which Argo CD 3.3 imports it. That of 3.3 is a folder of
// Argo CD's repository, which is in no module that is published: its own module ends before it,
// and lacks what 3.3 calls. The one of 3.5.3 is published, and has, under a later name, all that
// 3.3 uses of it but two constants.
module github.com/argoproj/gitops-engine

go 1.26.3

require github.com/argoproj/argo-cd/gitops-engine v0.0.0-20260914071520-c9c369efcc5b
