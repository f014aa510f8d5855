package needs

import (
	"encoding/base64"
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/stream"
)

func TestSameRepository(t *testing.T) {
	same := [][]string{
		{"https://git.test/Org/a.git", "https://git.test/org/a", " https://user:pw@git.test/org/a/ "},
		{"git@git.test:org/a.git", "ssh://git@git.test/org/a", "ssh://git.test/org/a.git"},
	}
	for _, group := range same {
		for _, url := range group {
			if got, want := sameRepository(url), sameRepository(group[0]); got != want {
				t.Errorf("sameRepository(%q) = %q, want %q", url, got, want)
			}
		}
	}
	if sameRepository("https://git.test/a") == sameRepository("ssh://git.test/a") {
		t.Error("another way to it is another repository: it has other credentials")
	}
}

// Anyone who may name the URL of a repository must not get what is another host's by it.
func TestCoverage(t *testing.T) {
	tests := map[string]struct {
		template, used string
		want           bool
	}{
		"the same":                          {"https://git.test/org", "https://git.test/org.git", true},
		"below":                             {"https://git.test/org", "https://git.test/org/a.git", true},
		"that begins alike":                 {"https://git.test/org", "https://git.test/organ/a", true},
		"below a slash":                     {"https://git.test/org/", "https://git.test/org/a", true},
		"that begins alike, after a slash":  {"https://git.test/org/", "https://git.test/organ/a", false},
		"of a host":                         {"https://git.test", "https://git.test/org/a", true},
		"of a host with a slash":            {"https://git.test/", "https://git.test/org/a", true},
		"of a host, on another port":        {"https://git.test", "https://git.test:8443/org/a", true},
		"of a longer host":                  {"https://git.test", "https://git.test.example/org/a", false},
		"of a longer host, after a slash":   {"https://git.test/", "https://git.test.example/org/a", false},
		"of a host by SSH":                  {"git@git.test", "git@git.test:org/a.git", true},
		"of a longer host by SSH":           {"ssh://git@git.test", "git@git.test.example:org/a.git", false},
		"of a registry, without a scheme":   {"registry.test/charts", "registry.test/charts/web", true},
		"of another, with the host as user": {"https://git.test", "https://git.test@git.example/a", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := coverage(test.template)(sameRepository(test.used)); got != test.want {
				t.Errorf("coverage(%q)(%q) = %t", test.template, test.used, got)
			}
		})
	}
}

func TestNeeds(t *testing.T) {
	n := NewNeeds()
	if !n.Admit("web", true) || n.Admit("web", true) || n.Admit("shop", false) {
		t.Error("admit does not tell what is news")
	}
	if !n.Use("a", []string{sameRepository("https://git.test/org/a.git")}) || n.Use("a", []string{"https://git.test/org/a"}) {
		t.Error("use does not tell what is news")
	}
	tests := map[string]struct {
		secretType string
		data       m
		shared     bool
		want       bool
	}{
		"of a project that the agent gets":               {object.RepositoryType, secretData("project", "web", "url", "https://git.test/x"), false, true},
		"of a project that it does not get, though used": {object.RepositoryType, secretData("project", "shop", "url", "https://git.test/org/a"), true, false},
		"without a project, used, not shared":            {object.RepositoryType, secretData("url", "https://git.test/org/a"), false, false},
		"without a project, used, shared":                {object.RepositoryType, secretData("url", "https://git.test/org/a"), true, true},
		"without a project, shared, not used":            {object.RepositoryType, secretData("url", "https://git.test/org/b"), true, false},
		"a template by its prefix":                       {object.TemplateType, secretData("url", "https://git.test/org"), true, true},
		"a template that is not used":                    {object.TemplateType, secretData("url", "https://git.test/other"), true, false},
		"without a URL it is a template of everything":   {object.TemplateType, secretData("password", "p"), true, false},
		"a repository is no template":                    {object.RepositoryType, secretData("url", "https://git.test/org"), true, false},
		"a project that cannot be read is none":          {object.RepositoryType, m{"project": "%%%"}, true, false},
		"a template of a project that the agent gets":    {object.TemplateType, secretData("project", "web", "url", "https://git.test/"), false, true},
		"a write template of a project it does not get":  {object.WriteTemplateType, secretData("project", "shop"), true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := objecttest.Object(t, stream.ResourceKey{Kind: stream.Secret, Namespace: "argocd", Name: "s"}, m{"labels": m{object.SecretTypeKey: test.secretType}}, m{"data": test.data})
			if got := n.Wants(o, test.shared); got != test.want {
				t.Errorf("wants() = %t", got)
			}
		})
	}
	if !n.Use("a", nil) || len(n.urls)+len(n.byApp) > 0 {
		t.Errorf("after its last Application went it still knows %v %v", n.urls, n.byApp)
	}
}

type m = map[string]any

// secretData is the data of a Secret.
func secretData(pairs ...string) m {
	data := m{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = base64.StdEncoding.EncodeToString([]byte(pairs[i+1]))
	}
	return data
}
