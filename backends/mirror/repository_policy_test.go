package mirror

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/stream"
)

// What a repository says is what its proxy says: where the spoke's owner bounds what is
// deployed, and from where, the hub chooses no proxy, neither for its own Applications nor
// for those of the owner that have the same repository.
func TestProxyOfARepository(t *testing.T) {
	open := DefaultPolicy()
	repositories, namespaces := DefaultPolicy(), DefaultPolicy()
	repositories.SourceRepos = []string{"https://git.test/**"}
	namespaces.DestinationNamespaces = []string{"web"}
	const url, proxy = "https://git.test/a", "http://evil.example:3128"
	for name, test := range map[string]struct {
		policy     *Policy
		secretType string
		data       m
		refusal    string
	}{
		"no policy":                             {nil, typeRepository, secretData("url", url, "proxy", proxy), ""},
		"a policy that is open":                 {&open, typeRepository, secretData("url", url, "proxy", proxy), ""},
		"repositories are bound":                {&repositories, typeRepository, secretData("url", url, "proxy", proxy), "denied: policy.source_repos"},
		"and it has a project":                  {&repositories, typeRepository, secretData("url", url, "proxy", proxy, "project", "p"), "denied: policy.source_repos"},
		"a template":                            {&repositories, typeTemplate, secretData("url", "https://", "proxy", proxy), "denied: policy.source_repos"},
		"namespaces are bound":                  {&namespaces, typeRepository, secretData("url", url, "proxy", proxy), "denied: policy.destination_namespaces"},
		"it is of the hub's Applications alone": {&namespaces, typeRepository, secretData("url", url, "proxy", proxy, "project", "p"), ""},
		"a template is of all projects":         {&namespaces, typeTemplate, secretData("url", url, "proxy", proxy, "project", "p"), "denied: policy.destination_namespaces"},
		"no proxy":                              {&repositories, typeRepository, secretData("url", url, "password", "hunter2"), ""},
		"an empty one":                          {&namespaces, typeTemplate, secretData("url", url, "proxy", ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			spoke := ruleSet(t, stream.Spoke, stream.Managed)
			spoke.Policy = test.policy
			event := makeEvent(stream.Repositories, "hub-secret", 9, m{"labels": m{secretTypeKey: test.secretType}, "annotations": m{}, "data": test.data})
			key, _ := spoke.Local(event.Key)
			writes, refusal := spoke.Plan(event, key, nil, Requests{})
			if got := refusalText(refusal); !strings.HasPrefix(got, test.refusal) || (got == "") != (test.refusal == "") {
				t.Errorf("refusal %q, want %q", got, test.refusal)
			}
			if (len(writes) == 0) != (test.refusal != "") {
				t.Errorf("%d writes", len(writes))
			}
		})
	}
}
