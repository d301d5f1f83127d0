import json,collections,sys
d=json.load(open(sys.argv[1]))
it=sorted(((s*l,s,l,k) for k,(s,l) in d.items()),reverse=True)
print('total cpu',sum(i[0] for i in it),'wall', sum(i[1] for i in it))
for c,s,l,k in it[:45]: print(f"{c:7.1f} cpu {s:6.1f} s {l:5.2f}  {k}")
c=collections.Counter();w=collections.Counter()
for cpu,s,l,k in it: c[k.split('/')[0]]+=cpu; w[k.split('/')[0]]+=s
for k,v in c.most_common(): print(k, round(v), round(w[k]))
