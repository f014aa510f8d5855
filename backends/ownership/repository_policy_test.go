package ownership

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/stream"
)

// What a repository says is what its proxy says: where the spoke's owner bounds what is
// deployed, and from where, the hub chooses no proxy, neither for its own Applications nor
// for those of the owner that have the same repository.
func TestProxyOfARepository(t *testing.T) {
	open := policy.Default()
	repositories, namespaces := policy.Default(), policy.Default()
	repositories.SourceRepos = []string{"https://git.test/**"}
	namespaces.DestinationNamespaces = []string{"web"}
	const url, proxy = "https://git.test/a", "http://evil.example:3128"
	for name, test := range map[string]struct {
		policy     *policy.Policy
		secretType string
		data       m
		refusal    string
	}{
		"no policy":                             {nil, object.RepositoryType, secretData("url", url, "proxy", proxy), ""},
		"a policy that is open":                 {&open, object.RepositoryType, secretData("url", url, "proxy", proxy), ""},
		"repositories are bound":                {&repositories, object.RepositoryType, secretData("url", url, "proxy", proxy), "denied: policy.source_repos"},
		"and it has a project":                  {&repositories, object.RepositoryType, secretData("url", url, "proxy", proxy, "project", "p"), "denied: policy.source_repos"},
		"a template":                            {&repositories, object.TemplateType, secretData("url", "https://", "proxy", proxy), "denied: policy.source_repos"},
		"namespaces are bound":                  {&namespaces, object.RepositoryType, secretData("url", url, "proxy", proxy), "denied: policy.destination_namespaces"},
		"it is of the hub's Applications alone": {&namespaces, object.RepositoryType, secretData("url", url, "proxy", proxy, "project", "p"), ""},
		"a template is of all projects":         {&namespaces, object.TemplateType, secretData("url", url, "proxy", proxy, "project", "p"), "denied: policy.destination_namespaces"},
		"no proxy":                              {&repositories, object.RepositoryType, secretData("url", url, "password", "hunter2"), ""},
		"an empty one":                          {&namespaces, object.TemplateType, secretData("url", url, "proxy", ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			spoke := ruleSet(t, stream.Spoke, stream.Managed)
			spoke.Policy = test.policy
			event := objecttest.Apply(stream.Repositories, "hub-secret", 9, m{"labels": m{object.SecretTypeKey: test.secretType}, "annotations": m{}, "data": test.data})
			key, _ := spoke.Local(event.Key)
			writes, refusal := spoke.Plan(event, key, nil, operations.Requests{})
			if got := refusalText(refusal); !strings.HasPrefix(got, test.refusal) || (got == "") != (test.refusal == "") {
				t.Errorf("refusal %q, want %q", got, test.refusal)
			}
			if (len(writes) == 0) != (test.refusal != "") {
				t.Errorf("%d writes", len(writes))
			}
		})
	}
}
