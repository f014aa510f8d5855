package policy

import (
	"strings"
	"testing"
)

// A pattern says of which host a repository is: no URL of another one matches it, however it
// is read by git, by curl or by a registry's client.
func TestRepositoriesOfAPattern(t *testing.T) {
	for pattern, urls := range map[string]struct{ admitted, refused string }{
		"https://*.example.org/**": {
			admitted: "https://git.example.org/a https://user@git.example.org/a/b.git https://a.b.example.org/c https://user:secret@git.example.org/a",
			refused: "https://evil.test?.example.org/a https://evil.test#.example.org/a https://evil.test\\.example.org/a https://evil.test%2f.example.org/a " +
				"https://evil.test:443.example.org/a https://evil.test/.example.org/a https://evil.test\u2044.example.org/a https://evil.test\uff0f.example.org/a " +
				"https://evil.test\t.example.org/a https://evil.test:@x@.example.org/a https://evil.test?@git.example.org/a http://git.example.org/a",
		},
		"https://*/team/*": {
			admitted: "https://git.example.org/team/a https://git.example.org:8443/team/a",
			refused:  "https://git.example.org/other/team/a https://git.example.org/team/a/b",
		},
		"https://git.example.org/team/**": {
			admitted: "https://git.example.org/team/a https://git.example.org/team/a/b:c",
			refused:  "https://git.example.org/team/../other/a https://git.example.org/team/%2e%2e/other https://git.example.org/team/a?x https://git.example.org@evil.test/team/a",
		},
		"git@*.example.org:team/*": {
			admitted: "git@git.example.org:team/a",
			refused:  "git@evil.test:x.example.org:team/a git@evil.test@x.example.org:team/a git@git.example.org:other/a",
		},
		"ssh://git@*.example.org/**": {
			admitted: "ssh://git@git.example.org/a",
			refused:  "ssh://git@evil.test:22.example.org/a ssh://git@evil.test@x.example.org/a ssh://git@evil.test:a.example.org/b",
		},
		"*.example.org/charts": {
			admitted: "registry.example.org/charts",
			refused:  "evil.test:x.example.org/charts evil.test/x.example.org/charts",
		},
		"https://evil.test?.example.org/a": { // letter by letter all is admitted
			admitted: "https://evil.test?.example.org/a",
			refused:  "https://evil.testX.example.org/b",
		},
	} {
		p := Default()
		p.SourceRepos = []string{pattern}
		for _, url := range strings.Split(urls.admitted, " ") {
			if refusal := p.Sources(m{"source": m{"repoURL": url}}); refusal != nil {
				t.Errorf("%s is not admitted by %s: %s", url, pattern, refusal.Message)
			}
		}
		for _, url := range strings.Split(urls.refused, " ") {
			if p.Sources(m{"source": m{"repoURL": url}}) == nil {
				t.Errorf("%q is admitted by %s", url, pattern)
			}
		}
	}
}

// A kustomization to which an Application itself adds what is of another repository is not
// of the one that the policy admits.
func TestComponentsOfOtherRepositories(t *testing.T) {
	p := Default()
	p.SourceRepos = []string{"https://git/**"}
	for component, admitted := range map[string]bool{
		"components/a": true, "../b": true, "./github.com/x": true, "v1.2/c": true, "a.git/b": true,
		"https://evil/x//y?ref=main": false, "HTTPS://evil/x": false, "ssh://git@evil/x": false, "file:///etc": false,
		"git@evil:x/y": false, "a@evil/x/y": false, "github.com/evil/x": false, "GitHub.com/evil/x": false,
		"github.com:evil/x": false, "git::github.com/evil/x": false, "gh:evil/x": false, "www.github.com/evil/x": false,
	} {
		source := m{"repoURL": "https://git/a", "kustomize": m{"components": []any{"fine", component}}}
		for where, spec := range map[string]m{
			"source": {"source": source}, "sources": {"sources": []any{m{"repoURL": "https://git/b"}, source}},
			"hydrator": {"sourceHydrator": m{"drySource": source}},
		} {
			refusal := p.Sources(spec)
			if (refusal == nil) != admitted {
				t.Errorf("%q in %s: %v", component, where, refusal)
			}
			if refusal != nil && !strings.Contains(refusal.Message, "policy.source_repos") {
				t.Errorf("%q: %s", component, refusal.Message)
			}
		}
	}
	all := Default()
	if refusal := all.Sources(m{"source": m{"repoURL": "https://git/a", "kustomize": m{"components": []any{"https://evil/x"}}}}); refusal != nil {
		t.Errorf("where all repositories may be: %s", refusal.Message)
	}
}

type m = map[string]any
