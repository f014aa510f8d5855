package appkey_test

import (
	"strings"
	"testing"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/google/go-cmp/cmp"
)

func TestParseKey(t *testing.T) {
	for text, want := range map[string]appkey.Key{
		"app|managed-resources|shop|1.8.3.gz":           {Family: "managed-resources", Instance: appkey.Instance{Name: "shop"}, Format: "1.8.3.gz"},
		"app|managed-resources|edge-1_shop.web|1.8.3":   {Family: "managed-resources", Instance: appkey.Instance{Namespace: "edge-1", Name: "shop.web"}, Format: "1.8.3"},
		"app|resources-tree|edge-1_shop|12|1.8.3.gz":    {Family: "resources-tree", Instance: appkey.Instance{Namespace: "edge-1", Name: "shop"}, Shard: "12", Format: "1.8.3.gz"},
		"app|resources-tree|edge-1_shop|1.8.3-rc1+x.gz": {Family: "resources-tree", Instance: appkey.Instance{Namespace: "edge-1", Name: "shop"}, Format: "1.8.3-rc1+x.gz"},
	} {
		got, ok := appkey.ParseKey(text)
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("ParseKey(%s) %t (-want +got)\n%s", text, ok, diff)
		}
	}
	for _, text := range []string{
		"", "app", "app|resources-tree|shop", "app|resources-tree||1.8.3", "app|resources-tree|shop|", "app|other|shop|1.8.3", "APP|resources-tree|shop|1.8.3",
		"app|resources-tree|_shop|1.8.3", "app|resources-tree|a_|1.8.3", "app|resources-tree|a_b_c|1.8.3", "app|resources-tree|a.b_c|1.8.3", "app|resources-tree|A_c|1.8.3",
		"app|resources-tree|shop|0|1.8.3", "app|resources-tree|shop|01|1.8.3", "app|resources-tree|shop|-1|1.8.3", "app|resources-tree|shop|x|1.8.3", "app|resources-tree|shop|1|2|1.8.3",
		"app|managed-resources|shop|1|1.8.3", "app|resources-tree|shop|1.8.3\r\n", "app|resources-tree|shop|1.8 3", "app|resources-tree|sh*p|1.8.3", " app|resources-tree|shop|1.8.3",
		"app|resources-tree|" + strings.Repeat("a", 254) + "|1.8.3", "app|resources-tree|" + strings.Repeat("a", 64) + "_b|1.8.3", "app|resources-tree|a-_b|1.8.3", "app|resources-tree|a..b|1.8.3",
		"app|resources-tree|shop|" + strings.Repeat("1", 65), "cluster|info|https://x|1.8.3.gz",
	} {
		if k, ok := appkey.ParseKey(text); ok {
			t.Errorf("ParseKey(%q) = %+v", text, k)
		}
	}
}
