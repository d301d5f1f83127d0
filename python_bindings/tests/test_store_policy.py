# SPDX-License-Identifier: Apache-2.0
"""The rights that the page "Object stores" names are enough for what it says, and none is one too many: moto's server checks them."""
from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stores
from stored_tokens import build, epoch

import rankstore

pytest.importorskip("obstore")
pytest.importorskip("moto")
boto3 = pytest.importorskip("boto3")

PAGE = Path(__file__).parents[1] / "docs" / "stores.md"



def rights() -> dict[str, list[str]]:
    """Of each job of the page's table, the actions on the bucket and on its objects."""
    rows = re.findall(r"^\| (reads|publishes|prunes)[^|]*\|([^|]*)\|([^|]*)\|$", PAGE.read_text(encoding="utf-8"), re.M)
    assert [row[0] for row in rows] == ["reads", "publishes", "prunes"]
    return {job: [re.findall(r"s3:\w+", one) for one in row] for job, *row in rows}


class Bucket:
    """A bucket of a server that checks signatures and rights."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.users = address, 0
        stores.make_bucket(address, name)
        self.arn = f"arn:aws:s3:::{name}"

    def check(self, after: str) -> None:
        """Let so many requests pass before the server checks them."""
        urllib.request.urlopen(urllib.request.Request(f"{self.address}/moto-api/reset-auth", data=after.encode(),  # noqa: S310
                                                      headers={"Content-Type": "text/plain"})).close()

    def user(self, on_bucket: list[str], on_objects: list[str]) -> dict[str, Any]:
        """Return the options of a new user who may do this to the bucket, and to its objects below tokens/."""
        self.users += 1
        name = f"user{self.users}"
        self.check("inf")
        iam = boto3.client("iam", endpoint_url=self.address, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
        iam.create_user(UserName=name)
        on_bucket = on_bucket + [one for one in on_objects if one == "s3:DeleteObject"]  # moto asks for it there, S3 does not
        rights = [{"Effect": "Allow", "Action": actions, "Resource": where}
                  for actions, where in ((on_bucket, self.arn), (on_objects, f"{self.arn}/tokens/*")) if actions]
        iam.put_user_policy(UserName=name, PolicyName="rights", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": rights}))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        self.check("0")
        return {"endpoint": self.address, "region": "us-east-1", "access_key_id": key["AccessKeyId"],
                "secret_access_key": key["SecretAccessKey"]}


@pytest.fixture
def checked() -> Iterator[Bucket]:
    with stores.moto() as address:
        yield Bucket(address, "checked")


def test_reading(checked: Bucket, tokens: Path, tmp_path: Path) -> None:
    url = "s3://checked/tokens/a"
    rankstore.publish(tokens, url, storage_options=checked.user(*rights()["publishes"]))
    options = checked.user(*rights()["reads"])
    assert rights()["reads"] == [[], ["s3:GetObject"]]
    assert epoch(url, tmp_path / "l", options)[1] > 0
    rankstore.stage(url, tmp_path / "l", storage_options=options)
    assert rankstore.prune_local(tmp_path / "l", storage_options=options).shards > 0
    with pytest.raises(rankstore.IOFailedError, match="403 Forbidden.*may this credential do that"):
        rankstore.open(url, local=tmp_path / "none", storage_options=checked.user([], ["s3:PutObject"]))


def test_publishing(checked: Bucket, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    large = ({"data": bytes([i % 251]) * 1_000_000} for i in range(66))  # above what one request puts
    rankstore.build(large, tmp_path / "d").close()
    on_bucket, on_objects = rights()["publishes"]
    for number, lacks in enumerate((None, "s3:GetObject", "s3:PutObject")):
        options = checked.user(on_bucket, [one for one in on_objects if one != lacks])
        if lacks is None:
            assert rankstore.publish(tmp_path / "d", f"s3://checked/tokens/{number}", storage_options=options).sent_shards == 1
            continue
        with pytest.raises(rankstore.IOFailedError, match="403 Forbidden.*may this credential do that"):
            rankstore.publish(tmp_path / "d", f"s3://checked/tokens/{number}", storage_options=options)
    assert "remove dataset.claim" not in capfd.readouterr().err
    options = checked.user(on_bucket, [one for one in on_objects if one != "s3:DeleteObject"])
    rankstore.publish(tmp_path / "d", "s3://checked/tokens/stays", storage_options=options)
    assert "s3://checked/tokens/stays: remove dataset.claim there" in capfd.readouterr().err


def test_pruning(checked: Bucket, tmp_path: Path) -> None:
    url, all_rights = "s3://checked/tokens/a", checked.user(*rights()["publishes"])
    for first, end in ((0, 40), (40, 60)):
        build(tmp_path / "d", first, end, append=first > 0, home=url, storage_options=all_rights)
    on_bucket, on_objects = rights()["prunes"]
    for lacks in (*on_bucket, *on_objects, None):
        options = checked.user(*([one for one in some if one != lacks] for some in (on_bucket, on_objects)))
        if lacks is None:
            assert rankstore.prune(url, keep=1, storage_options=options).generations == 1
            continue
        with pytest.raises(rankstore.IOFailedError, match="may this credential do that"):
            rankstore.prune(url, keep=1, storage_options=options)
